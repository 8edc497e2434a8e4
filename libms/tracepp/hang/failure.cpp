#include "tracepp/hang/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace ms::tracepp {
namespace {

// Returns the first of the ranks that failed by themselves, as far as is known. Foreign traces do not say whether a
// rank was aborted by others: there, a rank that waits for nobody comes first.
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

}  // namespace

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
  return blames;
}

}  // namespace ms::tracepp
