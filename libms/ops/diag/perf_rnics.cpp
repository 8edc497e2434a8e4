// perf.rnics: from every RDMA adapter to the next one of the same node.
#include <unistd.h>

#include "diag/rates.h"
#include "diag/rdma.h"

namespace ms::diag {
namespace {

health::Result measure_rnics(health::Evidence& evidence) {
  const std::vector<RdmaPort> ports = active_ports(evidence.root());
  if (ports.size() < 2) return health::skipped("fewer than two ports of RDMA adapters are active");
  const std::string& tool = evidence.policy().paths.perftest;
  if (::access(tool.c_str(), X_OK) != 0) return health::skipped(fmt::format("there is no {} (paths.perftest)", tool));
  const Share share = this_share();
  if (share.index > 0) return health::skipped("the first process of this node does it");
  const health::ActiveConfig& expect = evidence.policy().active;
  std::vector<Rate> rates;
  std::vector<std::string> not_measured;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const RdmaPort &from = ports[i], &to = ports[(i + 1) % ports.size()];
    const std::string entity = fmt::format("{} to {}", from.name(), to.name());
    const RdmaRun run = evidence.left_s() > kRdmaDeadline_s ? write_bandwidth(tool, from, to, {}, static_cast<int>(i))
                                                            : RdmaRun{.why = "no time was left"};
    if (run.gbps < 0) {
      not_measured.push_back(fmt::format("{}: {}", entity, run.why));
    } else {
      rates.push_back(rdma_rate(entity, run.gbps, from.gbps <= to.gbps ? from : to, expect));
    }
  }
  return rdma_result(rates, not_measured, share, expect.min_fraction, "over the wire between adapters of this node");
}

}  // namespace

extern constinit const health::Check kPerfRnics = {
    .code = "perf.rnics",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "an RDMA adapter that is slow to another one of the node",
    .needs = "two active RDMA ports and perftest (paths.perftest)",
    .deadline_s = 30,
    .blame = Blame::fabric,
    .cost = health::Cost::seconds,
    .takes = health::kWire | health::kBus,
    .proved = kProvedFakePerftest,
    .explain =
        "Runs ib_write_bw of perftest from every active port of the node to the next one, 2 GB each time. The data "
        "cross both cables and the switch. If this is slow and perf.rdma of the same adapter is fast, the link is at "
        "fault and not the host.\n\n"
        "The limit is active.rdma_gbps, or a built-in value of the slower adapter. Adapters on networks without a "
        "connection give no result, which the note explains. Not yet seen on real hardware, so it only warns.",
    .remedy =
        "Clean or replace cable and transceiver of the adapter that both slow rows name, and look at its switch port.",
    .run = measure_rnics};

}  // namespace ms::diag
