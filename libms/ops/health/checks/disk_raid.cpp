// The check disk.raid (check.h): software RAID that lost a disk.
#include <fmt/format.h>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

// "md0 : active raid1 sdb1[1](F) sda1[0]", then "      976630464 blocks super 1.2 [2/1] [U_]".
Result check_disk_raid(Evidence& evidence) {
  const auto text = evidence.root().read("/proc/mdstat");
  if (!text) return skipped("there is no /proc/mdstat: no md arrays");
  std::vector<Finding> findings;
  std::string array;
  std::size_t arrays = 0;
  for (const std::string& line : split(*text, '\n')) {
    Scan scan(line);
    const std::string name(scan.device());
    if (name.starts_with("md") && scan.literal(" : ")) {
      array = name;
      ++arrays;
      continue;
    }
    for (std::size_t at = line.find('['); at != std::string::npos && !array.empty(); at = line.find('[', at + 1)) {
      Scan members(std::string_view(line).substr(at + 1));
      const auto wanted = members.number();
      if (!wanted || !members.literal("/")) continue;
      const auto working = members.number();
      if (!working || !members.literal("]")) continue;
      if (*working < *wanted) {
        findings.push_back(about(array, Severity::warning, fmt::format("{} of {} members work", *working, *wanted),
                                 *working, *wanted));
      }
      array.clear();
    }
  }
  if (arrays == 0) return passed("no md arrays");
  return judged(std::move(findings), plural(arrays, "array"));
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
