// The check host.version (check.h): a kernel or BIOS that is not the one of the site.
#include <fmt/format.h>

#include <optional>

#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr std::string_view kWrongKernel =
    "See what other nodes run (uname -r there). If the new kernel was rolled out on purpose, change expect.kernel in "
    "that file. If not, this node booted a wrong image or kernel: choose the expected one at the boot server, or "
    "with grub-reboot on a node that boots from its disk, drain the node, and reboot it when no job runs.";
constexpr std::string_view kWrongBios =
    "See what other nodes have (dmidecode -s bios-version there). If that BIOS was rolled out on purpose, change "
    "expect.bios in that file. If not, flash the expected one when no job runs, and reboot the node.";

Result check_host_version(Evidence& evidence) {
  const ExpectConfig& expect = evidence.policy().expect;
  const std::string& path = evidence.policy().file;
  const std::string file = path.empty() ? "ms-diag.toml" : path;
  struct Row {
    std::string_view entity, file, key;
    const std::string& expected;
    std::string_view remedy;
  };
  const Row rows[] = {{"kernel", "/proc/sys/kernel/osrelease", "expect.kernel", expect.kernel, kWrongKernel},
                      {"BIOS", "/sys/class/dmi/id/bios_version", "expect.bios", expect.bios, kWrongBios}};
  std::vector<Finding> findings;
  std::size_t compared = 0;
  for (const Row& row : rows) {
    const auto is = row.expected.empty() ? std::nullopt : evidence.root().read(row.file, 256);
    if (!is) continue;
    ++compared;
    if (*is == row.expected) continue;
    findings.push_back(
        {.severity = Severity::warning,
         .entity = std::string(row.entity),
         .message = fmt::format("is {}, but {} in {} is {}", printable(*is), row.key, file, row.expected),
         .remedy = std::string(row.remedy)});
  }
  if (compared == 0) return skipped("the policy names neither expect.kernel nor expect.bios, or they cannot be read");
  return judged(std::move(findings));
}

}  // namespace

extern constinit const Check kHostVersion = {
    .code = "host.version",
    .summary = "a kernel or BIOS version other than the site's",
    .needs = "/proc, DMI",
    .explain =
        "Compares the kernel release with expect.kernel and the BIOS version with expect.bios, if set. ms-diag fleet "
        "finds nodes that differ without knowing the right version.",
    .remedy = "Install the version of the other nodes, and reboot the node.",
    .run = check_host_version};

}  // namespace ms::health
