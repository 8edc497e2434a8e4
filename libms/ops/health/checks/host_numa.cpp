// The check host.numa (check.h): sockets with less memory than the others.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr double kMostMissing = 0.10;

Result check_host_numa(Evidence& evidence) {
  constexpr const char* kNodes = "/sys/devices/system/node";
  const Sysroot& root = evidence.root();
  std::map<std::string, double> kib;
  for (const std::string& name : root.list(kNodes)) {
    Scan number(name);
    if (!number.literal("node") || !number.number() || !number.at_end()) continue;
    if (root.read(fmt::format("{}/{}/cpulist", kNodes, name)).value_or("").empty()) continue;
    const std::string text = root.read(fmt::format("{}/{}/meminfo", kNodes, name)).value_or("");
    const std::size_t at = text.find("MemTotal:");  // "Node 0 MemTotal:  1048576 kB"
    if (at == std::string::npos) continue;
    Scan scan(std::string_view(text).substr(at + std::string_view("MemTotal:").size()));
    scan.blanks();
    if (const auto value = scan.number()) kib[name] = static_cast<double>(*value);
  }
  if (kib.size() < 2) return skipped("there are no two NUMA nodes to compare");
  double most = 0;
  for (const auto& [name, value] : kib) most = std::max(most, value);
  std::vector<Finding> findings;
  for (const auto& [name, value] : kib) {
    if (value >= (1 - kMostMissing) * most) continue;
    findings.push_back(about("NUMA " + name, Severity::warning,
                             fmt::format("has {}, the largest {}", format_size(value * 1024), format_size(most * 1024)),
                             value / 1024, (1 - kMostMissing) * most / 1024, "MiB"));
  }
  return judged(std::move(findings), plural(kib.size(), "NUMA node"));
}

}  // namespace

extern constinit const Check kHostNuma = {
    .code = "host.numa",
    .summary = "sockets with less memory than the others",
    .needs = "/sys/devices/system/node",
    .explain =
        "Compares the memory of the NUMA nodes with CPUs. If one has over ten percent less than the largest, a DIMM is "
        "missing or disabled. This works even if the site sets no expected amount (host.memory). NUMA nodes without "
        "CPUs (HBM, CXL) are ignored.",
    .remedy = "Look for the missing DIMM: dmidecode -t memory, the BIOS's event log; reseat or replace it.",
    .run = check_host_numa};

}  // namespace ms::health
