// perf.nic: one TCP connection from the node to itself for each network interface's own address.
#include <algorithm>

#include "diag/nic.h"
#include "diag/rates.h"
#include "health/checks/check.h"

namespace ms::diag {
namespace {

constexpr double kAll_s = 6, kEach_s = 1;  // of sending: all interfaces together, one of them at most

health::Result measure_nic(health::Evidence& evidence) {
  const Share share = this_share();
  if (share.index > 0) return health::skipped("another process of this node does it");
  const std::vector<NicAddress> nics = nic_addresses(evidence.root());
  if (nics.empty()) return health::skipped("no network interface has an address");
  const health::ActiveConfig& expect = evidence.policy().active;
  const double seconds = std::min(kEach_s, kAll_s / static_cast<double>(nics.size()));
  std::vector<Rate> rates;
  for (const NicAddress& nic : nics) {
    rates.push_back({nic.interface, self_gbps(nic, seconds), expect.nic_gbps, "Gbit/s"});
  }
  return judge_rates(rates, expect.min_fraction, share, Scope::whole, "the node's own TCP stack, not the wire");
}

}  // namespace

extern constinit const health::Check kPerfNic = {
    .code = "perf.nic",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "local TCP through the address of a network interface slower than expected",
    .needs = "a network interface with an address",
    .deadline_s = 15,
    .cost = health::Cost::seconds,
    .takes = health::kNode,
    .on_hang = std::nullopt,
    .explain =
        "Opens one TCP connection from the node to itself for each interface that is up and has an address, for at "
        "most a second each.\n\n"
        "Linux does not send local traffic through the interface, so this measures the TCP stack, the firewall rules "
        "and the memory of the node, not the wire. It finds a node with a busy kernel, or with rules that drop its own "
        "traffic. perf.reduce measures the wire between nodes. The limit is active.nic_gbps.",
    .remedy = "Compare firewall rules, kernel settings and load with a node that is not slow.",
    .run = measure_nic};

}  // namespace ms::diag
