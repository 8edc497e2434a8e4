// The check net.flaps (check.h): links that keep going down.
#include <fmt/format.h>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/growth.h"
#include "health/evidence/links.h"

namespace ms::health {
namespace {

Result check_net_flaps(Evidence& evidence) {
  const double limit = static_cast<double>(evidence.policy().limits.link_flaps_per_day);
  std::vector<Finding> findings;
  Counters keep;
  for (const Link& link : watched_links(evidence)) {
    const auto downs =
        evidence.root().read_int(link.directory + (link.is_port ? "/counters/link_downed" : "/carrier_down_count"));
    if (!downs) continue;
    const auto per_day =
        growth_per_window(evidence, "net.flaps " + link.name, static_cast<double>(*downs), kDay_s, keep);
    if (!per_day || *per_day <= limit) continue;
    findings.push_back(about(link.name, Severity::warning, fmt::format("went down {:.0f} times in a day", *per_day),
                             *per_day, limit, "times/d"));
  }
  if (keep.empty()) return skipped("no link here counts how often it went down");
  Result result = judged(std::move(findings), plural(keep.size(), "link"));
  result.counters = std::move(keep);
  return result;
}

}  // namespace

extern constinit const Check kNetFlaps = {
    .code = "net.flaps",
    .summary = "links that keep going down",
    .needs = "carrier_down_count or link_downed",
    .explain =
        "Counts how often every physical interface and port went down since an earlier run, per day; more than "
        "limits.link_flaps_per_day is a warning. Each flap stalls collectives for seconds. If a counter decreased "
        "because a driver was reloaded, counting starts again.",
    .remedy =
        "Clean or replace cable and transceiver; if the other end flaps at the same times, suspect the switch port.",
    .run = check_net_flaps};

}  // namespace ms::health
