#include "tracepp/hang/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/text.h"

namespace ms::tracepp {
namespace {

// Returns the first of the ranks that failed by themselves, as far as is known. Foreign traces do not say whether a
// rank was aborted by others: there, a rank that waits for no other comes first.
std::optional<std::size_t> first_failure(const HangScan& scan) {
  const auto waits = [&](std::size_t at) {
    return std::ranges::any_of(scan.rank(at).open, [&](std::uint32_t event) { return scan.is_ready(at, event); });
  };
  std::optional<std::size_t> first;
  const auto comes_before = [&](std::size_t a, std::size_t b) {
    if (waits(a) != waits(b)) return waits(b);
    return scan.wall_ns(a, scan.file(a).last_flush_ns) < scan.wall_ns(b, scan.file(b).last_flush_ns);
  };
  for (std::size_t at = 0; at < scan.count(); ++at)
    if (scan.file(at).ending == Ending::failed && (!first || comes_before(at, *first))) first = at;
  return first;
}

// Returns the ranks whose traces end without a reason. A killed rank leaves none, and the others are stopped because it
// is gone. If no rank says that it was stopped, more than a quarter of all ranks are too many to accuse.
std::vector<std::size_t> without_a_word(const HangScan& scan, bool others_were_stopped) {
  std::vector<std::size_t> found;
  for (std::size_t at = 0; at < scan.count(); ++at)
    if (scan.file(at).ending == Ending::running) found.push_back(at);
  if (found.size() * 4 > scan.count() && !others_were_stopped) found.clear();
  return found;
}

// The result of an inquiry, as the errors of ranks repeat it: "...; rank 1 does not answer".
struct InquiryResult {
  std::string_view text;
  int said_by = 0;  // ranks
  std::int64_t first_ns = 0;
};

// Returns the result that most ranks end with, the earliest of several; an empty text if no rank gave up. A rank that
// was stopped and continues finds in turn that those that are gone do not answer.
InquiryResult inquiry_result(const HangScan& scan) {
  std::map<std::string_view, InquiryResult> results;
  bool gave_up = false;
  for (std::size_t at = 0; at < scan.count(); ++at) {
    const RankTrace& rank = scan.file(at);
    if (rank.ending != Ending::timed_out && rank.ending != Ending::stopped) continue;
    gave_up = gave_up || rank.ending == Ending::timed_out;
    const std::size_t end = rank.ending_text.rfind("; ");
    if (end == std::string::npos) continue;
    const std::string_view text = std::string_view(rank.ending_text).substr(end + 2);
    InquiryResult& result = results.try_emplace(text, InquiryResult{text, 0, scan.last_sign_ns(at)}).first->second;
    ++result.said_by;
    result.first_ns = std::min(result.first_ns, scan.last_sign_ns(at));
  }
  const auto order = [](const auto& a, const auto& b) {
    if (a.second.said_by != b.second.said_by) return a.second.said_by < b.second.said_by;
    return a.second.first_ns > b.second.first_ns;
  };
  const auto most = std::ranges::max_element(results, order);
  return gave_up && most != results.end() ? most->second : InquiryResult{};
}

// Returns the ranks of "rank 1 does not answer", "ranks 1, 3 do not answer"; empty: the text says something else.
std::vector<int> mute_ranks(std::string_view text) {
  const bool mute = text.ends_with(" does not answer") || text.ends_with(" do not answer");
  const std::size_t digits = text.starts_with("ranks ") ? 6 : text.starts_with("rank ") ? 5 : 0;
  if (!mute || digits == 0) return {};
  std::vector<int> ranks;
  const char* next = text.data() + digits;
  const char* const end = text.data() + text.size();
  for (int rank = 0;;) {
    const auto [behind, error] = std::from_chars(next, end, rank);
    if (error != std::errc()) return ranks;
    ranks.push_back(rank);
    if (!std::string_view(behind, end).starts_with(", ")) return ranks;
    next = behind + 2;
  }
}

// Returns whether the traces show a fault of this root, which is not inferred from what its ranks were in.
bool is_shown(const Blame& it) {
  const Reason reason = it.suspects.front().reason;
  return it.is_seen && (reason == Reason::silent || reason == Reason::failed || reason == Reason::left ||
                        (reason >= Reason::missing_call && reason <= Reason::wrong_order));
}

}  // namespace

void heed_inquiry(std::vector<Blame>& blames, const HangScan& scan) {
  constexpr double kUndisputed = 0.95, kDisputed = 0.5;
  const InquiryResult result = inquiry_result(scan);
  std::vector<int> mute = mute_ranks(result.text);
  std::erase_if(blames, [](const Blame& it) { return it.suspects.empty(); });
  std::erase_if(mute, [&](int rank) {
    return std::ranges::any_of(blames,
                               [&](const Blame& it) { return is_shown(it) && it.suspects.front().rank == rank; });
  });
  if (mute.empty()) return;
  for (Blame& it : blames) {
    if (is_shown(it)) continue;
    it.is_seen = false;
    std::erase_if(it.suspects, [&](const HangSuspect& suspect) {
      return suspect.reason == Reason::transfer || std::ranges::count(mute, suspect.rank) > 0;
    });
  }
  std::erase_if(blames, [](const Blame& it) { return it.suspects.empty(); });
  const bool disputed = std::ranges::any_of(blames, is_shown);
  for (std::size_t i = 0; i < std::min(mute.size(), kHangRoots); ++i) {
    Blame it;
    it.suspects.push_back(suspect_of(scan, mute[i], Reason::silent, disputed ? kDisputed : kUndisputed));
    it.behind = static_cast<std::size_t>(result.said_by);
    it.sentence = fmt::format(
        "{} did not answer when other ranks asked what it waits for, as the errors of {} say: its process "
        "was stalled, or its node could not be reached",
        rank_label(scan, mute[i]), plural(it.behind, "rank"));
    const std::optional<std::size_t> at = scan.find(mute[i]);
    if (at && has_error(scan.file(*at).ending)) it.sentence += "; it continued later";
    blames.push_back(std::move(it));
  }
}

std::vector<Blame> blame_failure(const HangGraph& graph, const HangScan& scan) {
  std::vector<Blame> blames;
  const std::vector<RankTrace>& ranks = scan.trace().ranks;
  const bool stopped = std::ranges::count(ranks, Ending::stopped, &RankTrace::ending) > 0;
  const std::optional<std::size_t> first = first_failure(scan);
  const std::vector<std::size_t> silent = without_a_word(scan, stopped && !first);
  // A launcher kills survivors, too, so a trace without a reason may be its work. The stopped ranks name those they
  // missed.
  std::set<int> missed;
  for (const RankTrace& other : ranks)
    if (other.ending == Ending::stopped) missed.insert(other.ending_rank);
  const auto is_missed = [&](std::size_t at) { return missed.contains(scan.file(at).rank); };
  const bool anyone_missed = std::ranges::any_of(silent, is_missed);
  for (const std::size_t at : silent) {
    if (blames.size() == kHangRoots) break;
    const double confidence = anyone_missed && !is_missed(at) ? 0.3 : first ? 0.6 : 0.9;
    Blame it;
    it.suspects.push_back(suspect_of(scan, scan.file(at).rank, Reason::silent, confidence));
    it.sentence = fmt::format("{} ended without a word, while others {}", rank_label(scan, scan.file(at).rank),
                              stopped ? "were stopped" : "failed");
    blames.push_back(std::move(it));
  }
  if (first) {
    blames.push_back(blame(hang_root(*first), graph, scan));
    if (blames.size() > 1)
      for (HangSuspect& suspect : blames.back().suspects) suspect.confidence = 0.5;
  }
  heed_inquiry(blames, scan);
  return blames;
}

}  // namespace ms::tracepp
