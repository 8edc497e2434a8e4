#include "ckpt/prune.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "ckpt/repair.h"
#include "ckpt/report.h"

namespace ms::ckpt {

Pruned prune(const std::string& dir, const PruneOptions& options) {
  Pruned result{.dir = dir, .dry_run = options.dry_run};
  if (!is_of_checkpoints(dir)) return result;
  std::optional<DirectoryLock> lock;
  if (!options.dry_run) lock.emplace(dir);
  const std::vector<Found> found = list(dir);
  result.gone = to_prune(found, options.policy);
  result.kept =
      std::count_if(found.begin(), found.end(), [](const Found& one) { return one.condition == Condition::complete; }) -
      std::ssize(result.gone);
  if (result.gone.empty()) return result;
  if (options.verify) {
    const Found* newest = resume_point(found);  // there is one, or nothing would go
    const Verified verified = examine(*newest, options.threads, options.progress);
    if (!verified.problems.empty()) {
      throw Error(verified.unreadable ? "ckpt.unreadable" : "ckpt.damaged", Blame::storage,
                  fmt::format("nothing was removed: {} {}: {}", newest->path,
                              verified.unreadable ? "cannot be read" : "is not sound", verified.problems.front()),
                  verified.unreadable ? "" : "'ms-ckpt repair --verify' sets it to damaged");
    }
  }
  if (!options.dry_run) {
    result.kept +=
        std::erase_if(result.gone, [&](const Found& one) { return !remove_checkpoint(lock->directory(), one.step); });
  }
  return result;
}

}  // namespace ms::ckpt
