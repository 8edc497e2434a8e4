// Implements judge_progress of witness_judge.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"
#include "tracepp/hang/witness_judge.h"

namespace ms::tracepp {
namespace {

constexpr double kEnded = 0.85, kOdd = 0.6;  // confidences
constexpr std::int64_t kStale_ns = 10'000'000'000;
constexpr std::int64_t kApart_ns = 7'200'000'000'000;  // far beyond timeouts: files that are apart by more are copies
constexpr std::size_t kMostOdd = 8;

std::string pause_label(std::int64_t ns) { return format_duration(std::max(0.0, seconds(ns))); }

class ProgressJudge {
 public:
  ProgressJudge(const std::vector<ProgressReport>& reports, std::int64_t now_ns) {
    for (const ProgressReport& report : reports) {
      written_ns_ = std::max(written_ns_, report.written_ns);
      limit_ns_ = std::max(limit_ns_, report.limit_ns);
      if (!report.slow.empty()) slow_ = report.slow;
      for (const ProcessProgress& it : report.processes) processes_.push_back(&it);
    }
    now_ns_ = std::max(now_ns, written_ns_);
    for (const ProcessProgress* it : processes_) newest_ns_ = std::max(newest_ns_, it->newest_ns);
  }

  Hang judge() {
    hang_.state = RunState::unknown;
    if (processes_.empty()) {
      hang_.sentence = "no rank trains";
    } else if (written_ns_ > 0 && now_ns_ - written_ns_ > kStale_ns) {
      hang_.sentence = fmt::format("written {} before the other sources looked: it tells nothing of then",
                                   pause_label(now_ns_ - written_ns_));
    } else if (!judge_dead()) {
      judge_progress();
    }
    return std::move(hang_);
  }

 private:
  void suspect(const ProcessProgress& it, Reason reason, double confidence) {
    HangSuspect& added = hang_.suspects.emplace_back();
    added.rank = it.process.rank;
    added.host = it.process.host;
    added.pid = it.process.pid;
    added.reason = reason;
    added.confidence = confidence;
    added.doing = it.doing.empty() ? fmt::format("{} done", it.done) : fmt::format("{} done, in {}", it.done, it.doing);
  }

  bool judge_dead() {
    const auto dead = std::ranges::count_if(processes_, &ProcessProgress::is_dead);
    if (dead == 0 || static_cast<std::size_t>(dead) == processes_.size()) return false;
    hang_.state = RunState::failed;
    for (const ProcessProgress* it : processes_)
      if (it->is_dead && hang_.suspects.size() < kMostOdd)
        suspect(*it, Reason::silent, kEnded / static_cast<double>(dead));
    hang_.sentence = fmt::format("{} ended while {} ran", plural(static_cast<std::size_t>(dead), "rank"),
                                 plural(processes_.size() - static_cast<std::size_t>(dead), "rank"));
    return true;
  }

  void judge_progress() {
    const std::int64_t since_ns = now_ns_ - newest_ns_;
    if (now_ns_ == 0) {
      hang_.sentence = fmt::format("{} made progress until the files end; nothing tells how long ago that was",
                                   plural(processes_.size(), "process"));
    } else if (since_ns > kApart_ns) {
      hang_.sentence = fmt::format("its newest entry is {} older than the other sources", pause_label(since_ns));
    } else if (since_ns <= limit_ns_) {
      hang_.state = RunState::cut_off;
      hang_.sentence = fmt::format("no hang: the last progress was {} before, and pauses of up to {} are usual",
                                   pause_label(since_ns), pause_label(limit_ns_));
      if (!slow_.empty()) hang_.sentence += "; it is slow: " + slow_;
    } else {
      hang_.state = RunState::hang;
      hang_.since_s = seconds(since_ns);
      hang_.sentence = fmt::format("no process made progress for {}", pause_label(since_ns));
      judge_odd();
    }
  }

  // Ranks wait for each other where most are: who is elsewhere, or did less, holds them up. What a process wrote of
  // ended operations is cut anywhere, and so is how many they are.
  void judge_odd() {
    if (written_ns_ == 0) return;
    std::map<std::pair<std::int64_t, std::string_view>, std::vector<const ProcessProgress*>> places;
    for (const ProcessProgress* it : processes_) places[{it->done, it->doing}].push_back(it);
    const auto most = std::ranges::max_element(places, {}, [](const auto& place) { return place.second.size(); });
    const std::size_t odd = processes_.size() - most->second.size();
    if (odd == 0 || odd > kMostOdd || 4 * odd > processes_.size()) return;
    for (const auto& [place, there] : places) {
      if (place == most->first) continue;
      for (const ProcessProgress* it : there) suspect(*it, reason_of(it->doing), kOdd / static_cast<double>(odd));
    }
    hang_.sentence += fmt::format("; {} is not where the others are: {}", process_name(named(hang_.suspects.front())),
                                  hang_.suspects.front().doing);
  }

  static Process named(const HangSuspect& it) { return {.rank = it.rank, .host = it.host, .pid = it.pid}; }

  static Reason reason_of(std::string_view section) {
    const auto has = [&](std::string_view word) { return section.find(word) != section.npos; };
    if (has("data") || has("load")) return Reason::data_wait;
    return has("save") || has("checkpoint") ? Reason::save : Reason::not_issuing;
  }

  std::vector<const ProcessProgress*> processes_;
  std::int64_t now_ns_ = 0, written_ns_ = 0, limit_ns_ = 0, newest_ns_ = 0;
  std::string slow_;
  Hang hang_;
};

}  // namespace

Hang judge_progress(const std::vector<ProgressReport>& reports, std::int64_t now_ns) {
  return ProgressJudge(reports, now_ns).judge();
}

}  // namespace ms::tracepp
