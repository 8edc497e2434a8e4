// The check net.errors (check.h): damaged packets on links.
#include <fmt/format.h>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/growth.h"
#include "health/evidence/links.h"

namespace ms::health {
namespace {

struct ErrorCounter {
  std::string_view file;
  std::string_view what;
};

// Damage on the wire or in the adapter; nothing that load or a peer's program can cause.
constexpr ErrorCounter kPortErrors[] = {
    {"counters/symbol_error", "symbol errors"},
    {"counters/link_error_recovery", "link recoveries"},
    {"counters/local_link_integrity_errors", "link integrity errors"},
    {"counters/port_rcv_errors", "packets received damaged"},
    {"counters/excessive_buffer_overrun_errors", "buffer overruns"},
};
constexpr ErrorCounter kInterfaceErrors[] = {
    {"statistics/rx_crc_errors", "frames with a wrong checksum"},
    {"statistics/rx_errors", "frames received damaged"},
    {"statistics/tx_errors", "frames that could not be sent"},
};

Result check_net_errors(Evidence& evidence) {
  const double limit = evidence.policy().limits.link_errors_per_hour;
  std::vector<Finding> findings;
  Counters keep;
  const auto look = [&](const Link& link, const ErrorCounter& counter) {
    const auto value = evidence.root().read_int(fmt::format("{}/{}", link.directory, counter.file));
    if (!value) return;  // restricted functions answer EINVAL
    const auto per_hour = growth_per_window(evidence, fmt::format("net.errors {} {}", link.name, counter.file),
                                            static_cast<double>(*value), kHour_s, keep);
    if (!per_hour || *per_hour <= limit) return;
    findings.push_back(about(link.name, Severity::warning, fmt::format("{:.0f} {} an hour", *per_hour, counter.what),
                             *per_hour, limit, "errors/h"));
  };
  for (const Link& link : watched_links(evidence)) {
    if (link.is_port) {
      for (const ErrorCounter& counter : kPortErrors) look(link, counter);
    } else {
      for (const ErrorCounter& counter : kInterfaceErrors) look(link, counter);
    }
  }
  if (keep.empty()) return skipped("no link here has error counters");
  Result result = judged(std::move(findings), plural(keep.size(), "counter"));
  result.counters = std::move(keep);
  return result;
}

}  // namespace

extern constinit const Check kNetErrors = {
    .code = "net.errors",
    .summary = "damaged packets on the wire",
    .needs = "error counters in sysfs",
    .explain =
        "Counts symbol errors, link recoveries, integrity errors, damaged packets and overruns of ports, and checksum "
        "and frame errors of interfaces since an earlier run; more than limits.link_errors_per_hour of one of them is "
        "a warning. A few are normal on optical links. Counters that the kernel does not let the node read, as with "
        "restricted PCI functions, are ignored.",
    .remedy = "Clean or replace cable and transceiver, and check the same counters of the switch port.",
    .run = check_net_errors};

}  // namespace ms::health
