#include "tracepp/read/witness_readers.h"

#include <algorithm>
#include <optional>

#include "base/json.h"
#include "base/text.h"
#include "tracepp/read/log_words.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kMostProgress_bytes = std::size_t{256} << 20, kMostProgressed = 1 << 20, kLongestWord = 128;
constexpr double kMostSeconds = 4e9;  // since 1970, or of a pause
constexpr std::int64_t kLeastPause_ns = 30'000'000'000, kMostPause_ns = 3'600'000'000'000;
constexpr std::int64_t kPauses = 10;  // times the longest pause before

// Returns a time or a duration in nanoseconds. Throws JsonError if it is neither.
std::int64_t ns_of(double seconds) {
  if (!(seconds >= 0) || seconds > kMostSeconds) throw JsonError("no time");
  return static_cast<std::int64_t>(seconds * 1e9);
}

ProgressReport status_of(const Json& json) {
  ProgressReport report{.source = "heartbeats", .processes = {}, .slow = {}};
  report.written_ns = ns_of(json.get<double>("written_s"));
  const Json* const ranks = json.find("ranks");
  if (ranks == nullptr || json.get<std::string>("phase") != "trains") return report;
  report.limit_ns = ns_of(json.get<double>("deadline_s"));
  const std::int64_t newest_ns = report.written_ns - ns_of(json.get<double>("progress_age_s"));
  if (const Json* slow = json.find("slow")) report.slow = plain_text(slow->get<std::string>("text"), 300);
  for (const Json& rank : *ranks) {
    if (report.processes.size() == kMostProgressed) break;
    report.processes.push_back(
        {.process = {.rank = std::max(-1, rank.get<int>("rank")),
                     .host = rank.get<std::string>("node").substr(0, kLongestWord),
                     .pid = 0},
         .done = rank.get<std::int64_t>("step"),
         .newest_ns = std::min(newest_ns, report.written_ns - ns_of(rank.get<double>("section_s"))),
         .doing = plain_text(rank.get<std::string>("section"), 40),
         .is_dead = !rank.get<bool>("alive")});
  }
  return report;
}

// One process's records, in the order of their times.
struct InspectorProgress {
  ProcessProgress progress;
  std::int64_t longest_ns = 0;  // pause between two records

  // Takes a line; returns whether it is a record.
  bool take(std::string_view line) {
    const std::optional<Json> json = Json::try_parse(line, {.max_depth = 8});
    if (!json) return false;
    try {
      const Json &header = json->at("header"), &metadata = json->at("metadata");
      if (json->find("coll_perf") == nullptr && json->find("p2p_perf") == nullptr) return false;
      const std::int64_t at_ns = ns_of(1e-6 * metadata.get<double>("dump_timestamp_us"));
      // The rank in the largest communicator is the nearest to that of the run.
      if (const int ranks = header.get<int>("n_ranks"); ranks > ranks_) {
        ranks_ = ranks;
        progress.process.rank = std::max(-1, header.get<int>("rank"));
      }
      progress.process.host = metadata.get<std::string>("hostname").substr(0, kLongestWord);
      progress.process.pid = std::max(0, metadata.get<int>("pid"));
      if (progress.newest_ns > 0) longest_ns = std::max(longest_ns, at_ns - progress.newest_ns);
      progress.newest_ns = std::max(progress.newest_ns, at_ns);
      ++progress.done;
      return true;
    } catch (const JsonError&) { return false; }
  }

 private:
  int ranks_ = 0;
};

}  // namespace

bool is_driver_status(std::string_view beginning, bool) {
  return has_words(beginning, "\"phase\"") && has_words(beginning, "\"job_id\"") &&
         has_words(beginning, "\"written_s\"");
}

bool is_inspector_file(std::string_view beginning, bool) {
  return has_words(beginning, "\"inspector_output_format_version\"") && has_words(beginning, "\"metadata\"");
}

std::int64_t read_driver_status(TextInput& input, RunTrace& trace) {
  const std::optional<Json> json = Json::try_parse(whole_text(input, kMostProgress_bytes), {.max_depth = 8});
  try {
    if (!json) throw JsonError("no JSON");
    trace.witnesses.progress.push_back(status_of(*json));
  } catch (const JsonError&) { ++trace.problems["status of ms-driver that is not understood"]; }
  return 0;
}

std::int64_t read_inspector(TextInput& input, RunTrace& trace) {
  InspectorProgress found;
  const std::string text = whole_text(input, kMostProgress_bytes);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = trim(std::string_view(text).substr(at, end - at));
    if (!line.empty() && !found.take(line)) ++trace.problems["record of NCCL's Inspector that is not understood"];
    at = end + 1;
  }
  if (found.progress.done == 0) return 0;
  trace.witnesses.progress.push_back(
      {.source = "NCCL's Inspector",
       .processes = {std::move(found.progress)},
       .limit_ns = std::max(kLeastPause_ns, kPauses * std::min(found.longest_ns, kMostPause_ns)),
       .slow = {}});
  return 0;
}

}  // namespace ms::tracepp
