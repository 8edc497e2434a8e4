// The check disk.raid (check.h): software RAID that lost a disk.
#include <fmt/format.h>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/md_arrays.h"

namespace ms::health {
namespace {

Result check_disk_raid(Evidence& evidence) {
  const auto arrays = read_md_arrays(evidence.root());
  if (!arrays) return skipped("there is no /proc/mdstat: no md arrays");
  if (arrays->empty()) return passed("no md arrays");
  std::vector<Finding> findings;
  for (const auto& [name, wanted, working] : *arrays) {
    if (!wanted || *working >= *wanted) continue;
    findings.push_back(
        about(name, Severity::warning, fmt::format("{} of {} members work", *working, *wanted), *working, *wanted));
  }
  return judged(std::move(findings), plural(arrays->size(), "array"));
}

}  // namespace

extern constinit const Check kDiskRaid = {
    .code = "disk.raid",
    .summary = "software RAID that lost a disk",
    .needs = "/proc/mdstat",
    .explain =
        "Reads the state of the md arrays of the node. An array with missing members is one failure from losing its "
        "data, and is slow while it rebuilds.",
    .remedy = "mdadm --detail shows the failed member; replace that disk and add it to the array.",
    .run = check_disk_raid};

}  // namespace ms::health
