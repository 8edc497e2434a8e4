// Implements the part of directory.h on which checkpoints a policy deletes. Pure: the caller deletes them, with
// remove_checkpoint().

#include <algorithm>

#include "ckpt/directory.h"

namespace ms::ckpt {

std::vector<Found> to_prune(const std::vector<Found>& found, const PrunePolicy& policy) {
  std::vector<Found> complete;
  for (const Found& one : found) {
    const bool passed_over = one.step > policy.passed_over_after && one.step < policy.passed_over_before;
    if (one.condition == Condition::complete && !passed_over) complete.push_back(one);
  }
  std::sort(complete.begin(), complete.end(), [](const Found& a, const Found& b) { return a.step < b.step; });
  const std::int64_t newest_kept = std::max<std::int64_t>(policy.keep_last, 1);
  if (std::ssize(complete) <= newest_kept) return {};
  complete.resize(complete.size() - static_cast<std::size_t>(newest_kept));
  std::erase_if(complete, [&](const Found& one) {
    return one.pinned || (policy.keep_every > 0 && one.step % policy.keep_every == 0);
  });
  return complete;
}

}  // namespace ms::ckpt
