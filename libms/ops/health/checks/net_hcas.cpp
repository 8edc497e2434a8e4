// The check net.hcas (check.h): RDMA adapters that are missing or differ in firmware.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

Result check_net_hcas(Evidence& evidence) {
  constexpr const char* kAdapters = "/sys/class/infiniband";
  const Sysroot& root = evidence.root();
  const std::vector<std::string> adapters = root.list(kAdapters);
  const std::int64_t expected = evidence.policy().expect.hcas;
  if (adapters.empty() && expected <= 0) return skipped("there are no RDMA adapters here, and none is expected");
  std::vector<Finding> findings;
  if (std::cmp_less(adapters.size(), expected)) {
    findings.push_back(about("adapters", Severity::warning,
                             fmt::format("{} of {} are there", adapters.size(), expected), adapters.size(), expected));
  }
  std::map<std::string, std::map<std::string, std::vector<std::string>>> boards;  // firmware -> adapters
  for (const std::string& name : adapters) {
    const auto board = root.read(fmt::format("{}/{}/board_id", kAdapters, name), 64);
    const auto firmware = root.read(fmt::format("{}/{}/fw_ver", kAdapters, name), 64);
    if (board && firmware) boards[*board][printable(*firmware)].push_back(name);
  }
  for (const auto& [board, versions] : boards) {
    const auto usual = std::max_element(versions.begin(), versions.end(),
                                        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    std::size_t all = 0;
    for (const auto& [version, names] : versions) all += names.size();
    const bool tie = 2 * usual->second.size() <= all;  // then it is not known which is the odd one
    for (const auto& [version, names] : versions) {
      if (version == usual->first) continue;
      findings.push_back(about(tie ? "adapters" : fmt::format("{}", fmt::join(names, ", ")), Severity::warning,
                               fmt::format("firmware {} on {}, {} on {} of the same board", version,
                                           fmt::join(names, ", "), usual->first, fmt::join(usual->second, ", "))));
    }
  }
  return judged(std::move(findings), plural(adapters.size(), "adapter"));
}

}  // namespace

extern constinit const Check kNetHcas = {
    .code = "net.hcas",
    .summary = "RDMA adapters that are missing or differ in firmware",
    .needs = "/sys/class/infiniband",
    .explain =
        "Compares the number of RDMA adapters with expect.hcas, and the firmware of adapters of the same board type "
        "with each other: a replacement often has older firmware. Not yet seen on real hardware, so it only warns.",
    .remedy =
        "For a missing adapter, see lspci and the kernel log; otherwise update the firmware (mlxfwmanager, flint) to "
        "that of the others.",
    .run = check_net_hcas};

}  // namespace ms::health
