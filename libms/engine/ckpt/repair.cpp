#include "ckpt/repair.h"

#include "ckpt/load.h"

namespace ms::ckpt {
namespace {

// Returns the repair that a checkpoint needs; nullopt if it is in order, set to damaged already, or cannot be read.
std::optional<Repair> remedy_for(const Found& found, const RepairOptions& options, std::int64_t& read_bytes,
                                 std::vector<Unreadable>& unreadable) {
  const bool committed = found.condition == Condition::complete || found.condition == Condition::incomplete;
  if (found.unreadable && (committed || found.condition == Condition::saving)) {
    unreadable.push_back({.path = found.path, .reasons = {found.problem}});
    return std::nullopt;
  }
  switch (found.condition) {
    case Condition::saving:
      if (found.manifest && found.problem.empty()) {
        return Repair{.path = found.path, .remedy = Remedy::committed, .reasons = {"its commit was interrupted"}};
      }
      return Repair{.path = found.path, .remedy = Remedy::removed, .reasons = {"left by a save that did not end"}};
    case Condition::deleting:
      return Repair{.path = found.path, .remedy = Remedy::removed, .reasons = {"left by a deletion that did not end"}};
    case Condition::incomplete:
      return Repair{.path = found.path, .remedy = Remedy::set_to_damaged, .reasons = {found.problem}};
    case Condition::complete: break;
    case Condition::damaged: return std::nullopt;
  }
  if (!options.verify) return std::nullopt;
  Verified verified = examine(found, options.threads, [&](std::int64_t bytes) {
    if (options.progress) options.progress(read_bytes + bytes);
  });
  read_bytes += found.manifest->size_bytes();
  if (verified.problems.empty()) return std::nullopt;
  if (verified.unreadable) {
    unreadable.push_back({.path = found.path, .reasons = std::move(verified.problems)});
    return std::nullopt;
  }
  return Repair{.path = found.path, .remedy = Remedy::set_to_damaged, .reasons = std::move(verified.problems)};
}

// Refuses a checkpoint of a newer program, which is not damaged: newest_complete() throws "ckpt.version" for it.
void refuse_newer(const std::string& dir, const Found& found) {
  if (found.condition == Condition::incomplete && !found.manifest) newest_complete(dir, found.step + 1);
}

}  // namespace

Verified examine(const Found& found, int threads, const std::function<void(std::int64_t)>& progress) {
  Verified result{.path = found.path, .step = found.step, .unreadable = found.unreadable};
  if (found.manifest) {
    result.size_bytes = found.manifest->size_bytes();
    result.problems = verify(found.path, threads, progress, &result.unreadable);
  }
  const bool by_data = found.condition == Condition::complete || found.condition == Condition::damaged;
  if (result.problems.empty() && !(found.manifest && by_data)) {
    result.problems.push_back(found.problem.empty() ? std::string("it was never committed") : found.problem);
  }
  return result;
}

std::string_view to_string(Remedy remedy) {
  switch (remedy) {
    case Remedy::removed: return "removed";
    case Remedy::set_to_damaged: return "set to damaged";
    case Remedy::committed: return "committed";
  }
  return "?";
}

RepairReport repair(const std::string& dir, const RepairOptions& options) {
  RepairReport report{.dry_run = options.dry_run};
  if (!is_of_checkpoints(dir)) return report;
  std::optional<DirectoryLock> lock;
  if (!options.dry_run) lock.emplace(dir);
  std::vector<Found> all = list(dir);
  for (const Found& found : all) refuse_newer(dir, found);
  if (!options.dry_run) {
    for (FinishedCommit& done : finish_commits(lock->directory())) {
      report.repairs.push_back({.path = std::move(done.was),
                                .remedy = Remedy::committed,
                                .reasons = {"its commit was interrupted"},
                                .now = std::move(done.now)});
    }
    if (!report.repairs.empty()) all = list(dir);
  }
  std::int64_t read_bytes = 0;
  std::optional<Found> to_commit;  // in a dry run; what is newer goes aside then
  for (Found& found : all) {
    const std::size_t unreadable = report.unreadable.size();
    std::optional<Repair> repair = remedy_for(found, options, read_bytes, report.unreadable);
    if (report.unreadable.size() > unreadable) continue;
    if (!repair) {
      if (found.condition != Condition::complete) continue;
      if (options.verify) ++report.verified;
      report.resume_from = std::move(found);  // the newest comes last
      continue;
    }
    if (!options.dry_run && repair->remedy == Remedy::set_to_damaged)
      repair->now = mark_damaged(lock->directory(), found.step);
    if (repair->remedy == Remedy::committed) to_commit = std::move(found);
    report.repairs.push_back(*std::move(repair));
  }
  if (to_commit) report.resume_from = std::move(to_commit);
  if (!options.dry_run) clean_up(lock->directory());
  return report;
}

}  // namespace ms::ckpt
