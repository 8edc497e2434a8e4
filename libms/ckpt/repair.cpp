#include "ckpt/repair.h"

#include "ckpt/load.h"

namespace ms::ckpt {
namespace {

// What is to be done about one; nothing where it is in order, or was seen to before.
std::optional<Repair> remedy_for(const Found& found, const RepairOptions& options, std::int64_t& read_bytes) {
  switch (found.condition) {
    case Condition::saving:
      return Repair{.path = found.path, .remedy = Remedy::removed, .reasons = {"left by a save that did not end"}};
    case Condition::deleting:
      return Repair{.path = found.path, .remedy = Remedy::removed, .reasons = {"left by a deletion that did not end"}};
    case Condition::incomplete:
      return Repair{.path = found.path, .remedy = Remedy::set_to_damaged, .reasons = {found.problem}};
    case Condition::complete:
      break;
    case Condition::damaged:
      return std::nullopt;
  }
  if (!options.verify) return std::nullopt;
  std::vector<std::string> problems = examine(found, options.threads, [&](std::int64_t bytes) {
                                        if (options.progress) options.progress(read_bytes + bytes);
                                      }).problems;
  read_bytes += found.manifest->size_bytes();
  if (problems.empty()) return std::nullopt;
  return Repair{.path = found.path, .remedy = Remedy::set_to_damaged, .reasons = std::move(problems)};
}

// What a newer program wrote is not damaged, though this one cannot read it: newest_complete() throws "ckpt.version".
void refuse_newer(const std::string& dir, const Found& found) {
  if (found.condition == Condition::incomplete && !found.manifest) newest_complete(dir, found.step + 1);
}

}  // namespace

Verified examine(const Found& found, int threads, const std::function<void(std::int64_t)>& progress) {
  Verified result{.path = found.path, .step = found.step};
  if (found.manifest) {
    result.size_bytes = found.manifest->size_bytes();
    result.problems = verify(found.path, threads, progress);
  }
  const bool by_data = found.condition == Condition::complete || found.condition == Condition::damaged;
  if (result.problems.empty() && !(found.manifest && by_data)) {
    result.problems.push_back(found.problem.empty() ? std::string("it was never committed") : found.problem);
  }
  return result;
}

std::string_view to_string(Remedy remedy) { return remedy == Remedy::removed ? "removed" : "set to damaged"; }

RepairReport repair(const std::string& dir, const RepairOptions& options) {
  std::optional<DirectoryLock> lock;
  if (!options.dry_run) lock.emplace(dir);
  RepairReport report{.dry_run = options.dry_run};
  std::vector<Found> all = list(dir);
  for (const Found& found : all) refuse_newer(dir, found);
  std::int64_t read_bytes = 0;
  for (Found& found : all) {
    std::optional<Repair> repair = remedy_for(found, options, read_bytes);
    if (!repair) {
      if (found.condition != Condition::complete) continue;
      if (options.verify) ++report.verified;
      report.resume_from = std::move(found);  // the newest comes last
      continue;
    }
    if (!options.dry_run && repair->remedy == Remedy::set_to_damaged) repair->now = mark_damaged(dir, found.step);
    report.repairs.push_back(*std::move(repair));
  }
  if (!options.dry_run) clean_up(dir);
  return report;
}

}  // namespace ms::ckpt
