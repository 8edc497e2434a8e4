// The check disk.nvme (check.h): NVMe disks that are missing or not live.
#include <fmt/format.h>

#include <utility>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

Result check_disk_nvme(Evidence& evidence) {
  const Sysroot& root = evidence.root();
  const std::vector<std::string> disks = root.list("/sys/class/nvme");
  const std::int64_t expected = evidence.policy().expect.nvmes;
  if (disks.empty() && expected <= 0) return skipped("there are no NVMe disks here, and none is expected");
  std::vector<Finding> findings;
  if (std::cmp_less(disks.size(), expected)) {
    findings.push_back(about("NVMe disks", Severity::warning, fmt::format("{} of {} are there", disks.size(), expected),
                             disks.size(), expected));
  }
  for (const std::string& disk : disks) {
    const auto state = root.read(fmt::format("/sys/class/nvme/{}/state", disk), 64);
    if (!state || *state == "live") continue;
    const bool dead = *state == "dead";
    // A dead controller across a network tells of the network, or of its server.
    const bool here = root.read(fmt::format("/sys/class/nvme/{}/transport", disk), 64).value_or("pcie") == "pcie";
    findings.push_back(about(disk, dead && here ? Severity::critical : Severity::warning,
                             dead ? "is dead: the kernel dropped its controller, and what is on it is out of reach"
                                  : fmt::format("is {}, not live", printable(*state))));
  }
  return judged(std::move(findings), plural(disks.size(), "NVMe disk"));
}

}  // namespace

extern constinit const Check kDiskNvme = {
    .code = "disk.nvme",
    .summary = "NVMe disks that are missing or not live",
    .needs = "/sys/class/nvme",
    .explain =
        "Every NVMe controller must be live, and there must be expect.nvmes of them. A controller that is resetting or "
        "being removed is a warning. A dead controller in this node is critical: its data are inaccessible until it is "
        "reset or replaced. It drains only if the site adds it to act.allow.",
    .remedy =
        "findmnt shows its mounts. Reboot the node when its jobs have ended or are cancelled. If the disk is still "
        "dead, or fails again, reseat and then replace it. See also nvme list and the kernel log.",
    .run = check_disk_nvme};

}  // namespace ms::health
