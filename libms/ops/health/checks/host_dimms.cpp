// The check host.dimms (check.h): DIMMs that are missing or differ.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

Result check_host_dimms(Evidence& evidence) {
  constexpr const char* kControllers = "/sys/devices/system/edac/mc";
  const Sysroot& root = evidence.root();
  std::map<std::int64_t, std::vector<std::string>> by_size;  // MiB
  std::int64_t dimms = 0;
  for (const std::string& controller : root.list(kControllers)) {
    for (const std::string& name : root.list(fmt::format("{}/{}", kControllers, controller))) {
      if (!name.starts_with("dimm")) continue;
      const std::string directory = fmt::format("{}/{}/{}", kControllers, controller, name);
      const auto size = root.read_int(directory + "/size");
      if (!size || *size <= 0) continue;
      ++dimms;
      by_size[*size].push_back(printable(root.read(directory + "/dimm_label", 256).value_or(controller + " " + name)));
    }
  }
  const std::int64_t expected = evidence.policy().expect.dimms;
  if (dimms == 0) return skipped("no driver of a memory controller (EDAC) tells of DIMMs");
  std::vector<Finding> findings;
  if (expected >= 0 && dimms < expected) {
    findings.push_back(
        about("DIMMs", Severity::warning, fmt::format("{} of {} are there", dimms, expected), dimms, expected));
  }
  const auto usual = std::max_element(by_size.begin(), by_size.end(),
                                      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  for (const auto& [size, names] : by_size) {
    if (size == usual->first || names.size() == usual->second.size()) continue;
    findings.push_back(
        about(names.front(), Severity::warning, fmt::format("has {} MiB, the others {}", size, usual->first)));
  }
  return judged(std::move(findings), fmt::format("{} DIMMs", dimms));
}

}  // namespace

extern constinit const Check kHostDimms = {
    .code = "host.dimms",
    .summary = "DIMMs that are missing or differ",
    .needs = "EDAC",
    .explain =
        "Counts the DIMMs reported by the memory controllers' drivers (EDAC), compares the number with expect.dimms, "
        "and their sizes with each other.",
    .remedy = "dmidecode -t memory shows which slot; reseat or replace that DIMM.",
    .run = check_host_dimms};

}  // namespace ms::health
