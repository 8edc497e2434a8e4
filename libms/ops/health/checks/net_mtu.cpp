// The check net.mtu (check.h): links whose MTU differs.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/links.h"

namespace ms::health {
namespace {

struct MtuOf {
  std::string name;
  std::int64_t speed = 0, mtu = 0;
};

Result check_net_mtu(Evidence& evidence) {
  const Sysroot& root = evidence.root();
  std::vector<MtuOf> links;
  for (const Link& link : watched_links(evidence)) {
    if (link.is_port || root.read(link.directory + "/operstate", 64) != "up") continue;
    const auto mtu = root.read_int(link.directory + "/mtu");
    if (mtu) links.push_back({link.name, root.read_int(link.directory + "/speed").value_or(0), *mtu});
  }
  if (links.empty()) return skipped("no network interface with hardware behind it is up");
  const std::int64_t expected = evidence.policy().expect.mtu;
  std::vector<Finding> findings;
  for (const MtuOf& link : links) {
    std::int64_t normal = expected;
    std::string from = "expected is (expect.mtu)";
    for (const MtuOf& other : links) {
      if (expected >= 0 || other.speed != link.speed || other.mtu <= normal) continue;
      normal = other.mtu;
      from = fmt::format("while {} of the same speed has", other.name);
    }
    if (link.mtu >= normal) continue;
    findings.push_back(
        {.severity = Severity::warning,
         .entity = link.name,
         .message = fmt::format("has an MTU of {}, {} {}", link.mtu, from, normal),
         .measured = static_cast<double>(link.mtu),
         .limit = static_cast<double>(normal),
         .unit = "bytes",
         .remedy = fmt::format("If other nodes have {1}, too (ip link there): ip link set {0} mtu {1} sets it until "
                               "the next boot; set it in the node's network configuration, too, and see that the "
                               "switch port allows it.",
                               link.name, normal)});
  }
  return judged(std::move(findings), plural(links.size(), "link"));
}

}  // namespace

extern constinit const Check kNetMtu = {
    .code = "net.mtu",
    .summary = "links with different MTUs",
    .needs = "/sys/class/net",
    .explain =
        "Compares the MTU of links that are up with expect.mtu; if that is not set, compares links of the same speed "
        "with each other. A port with 1500 among ports with 9000 is slow, or loses large packets.",
    .remedy =
        "Set the MTU of the others, now (ip link set NAME mtu N) and in the node's network configuration; check that "
        "the switch port allows it.",
    .run = check_net_mtu};

}  // namespace ms::health
