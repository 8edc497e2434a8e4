#include "tracepp/gaps.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/text.h"

namespace ms::tracepp {
namespace {

// "rank 3", "ranks 0, 1 and 6 more".
std::string some_ranks(const std::vector<int>& ranks, std::size_t count) {
  const std::size_t shown = std::min(ranks.size(), kMostNamedGaps);
  std::string text = fmt::format("{} {}", count == 1 ? "rank" : "ranks",
                                 fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (count > shown) text += fmt::format(" and {} more", count - shown);
  return text;
}

}  // namespace

bool Gaps::has_lost(std::int64_t step) const {
  return std::ranges::any_of(lost, [&](const LostSteps& of) { return step >= of.first && step <= of.last; });
}

Gaps find_gaps(const RunTrace& trace) {
  Gaps gaps;
  gaps.world = trace.has_mesh ? trace.mesh.size() : trace.world;
  gaps.files = trace.unusable;
  for (const RankTrace& rank : trace.ranks) {
    if (rank.lost_pages == 0) continue;
    gaps.pages += rank.lost_pages;
    gaps.paged.push_back(rank.rank);
    gaps.lost.insert(gaps.lost.end(), rank.lost.begin(), rank.lost.end());
  }
  if (!trace.source->signs_life) return gaps;
  gaps.missing = std::max<std::int64_t>(gaps.world - std::ssize(trace.ranks), 0);
  auto next = trace.ranks.begin();
  for (int rank = 0; rank < gaps.world && gaps.first.size() < kMostNamedGaps; ++rank) {
    if (next != trace.ranks.end() && next->rank == rank) {
      ++next;
    } else {
      gaps.first.push_back(rank);
    }
  }
  return gaps;
}

std::string gaps_text(const Gaps& gaps) {
  constexpr std::size_t kBytes = 200;
  std::vector<std::string> parts;
  if (gaps.missing > 0) {
    parts.push_back(fmt::format("{} of {} {} no trace", some_ranks(gaps.first, static_cast<std::size_t>(gaps.missing)),
                                gaps.world, gaps.missing == 1 ? "has" : "have"));
  }
  if (!gaps.files.empty()) {
    parts.push_back(plain_text(gaps.files.front(), kBytes));
    if (gaps.files.size() > 1) parts.back() += fmt::format(", and {} more cannot be read", gaps.files.size() - 1);
  }
  if (gaps.pages > 0) {
    parts.push_back(fmt::format("{} of events {} cut off or damaged, of {}",
                                plural(static_cast<std::size_t>(gaps.pages), "page"), gaps.pages == 1 ? "is" : "are",
                                some_ranks(gaps.paged, gaps.paged.size())));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

Json gaps_json(const Gaps& gaps) {
  return {{"missing_ranks", gaps.missing},
          {"missing_first", gaps.first},
          {"files", gaps.files},
          {"lost_pages", gaps.pages},
          {"lost_of_ranks", gaps.paged}};
}

}  // namespace ms::tracepp
