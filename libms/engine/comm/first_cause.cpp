#include "comm/first_cause.h"

namespace ms::comm {

std::string rank_list(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 16;
  const std::size_t shown = std::min(ranks.size(), kShown);
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < shown; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > shown) text += fmt::format(" and {} more", ranks.size() - shown);
  return text;
}

Error deadline_error(int rank, std::chrono::nanoseconds waited, const std::vector<int>& missing,
                     const std::string& what) {
  const Error error = Error("comm.deadline", Blame::peer,
                            fmt::format("rank {} waited {:.1f} s for {} in {}", rank,
                                        std::chrono::duration<double>(waited).count(), rank_list(missing), what))
                          .with_operation(what);
  return missing.size() == 1 ? error.with_rank(missing.front()) : error;
}

}  // namespace ms::comm
