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
    findings.push_back({.severity = Severity::warning,
                        .entity = "NVMe disks",
                        .message = fmt::format("{} of {} are there", disks.size(), expected),
                        .measured = static_cast<double>(disks.size()),
                        .limit = static_cast<double>(expected)});
  }
  for (const std::string& disk : disks) {
    const auto state = root.read(fmt::format("/sys/class/nvme/{}/state", disk), 64);
    if (!state || *state == "live") continue;
    findings.push_back({.severity = Severity::warning, .entity = disk, .message = "is " + printable(*state)});
  }
  return judged(std::move(findings), plural(disks.size(), "NVMe disk"));
}

}  // namespace

extern constinit const Check kDiskNvme = {
    .code = "disk.nvme",
    .lane = Lane::files,
    .summary = "NVMe disks that are missing or not live",
    .needs = "/sys/class/nvme",
    .explain =
        "Every NVMe controller must be live, and there must be as many as expect.nvmes says. One that is "
        "resetting, dead or being removed has lost its data or will.",
    .remedy = "nvme list and the kernel's log say more; reseat or replace that disk.",
    .run = check_disk_nvme};

}  // namespace ms::health
