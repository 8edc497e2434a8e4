// perf.rdma: every port of an RDMA adapter to itself, with data in every memory node.
#include <unistd.h>

#include <cstdlib>

#include "diag/rates.h"
#include "diag/rdma.h"

namespace ms::diag {
namespace {

health::Result measure_rdma(health::Evidence& evidence) {
  const std::vector<RdmaPort> ports = active_ports(evidence.root());
  if (ports.empty()) return health::skipped("no port of an RDMA adapter is active");
  const std::string& tool = evidence.policy().paths.perftest;
  if (::access(tool.c_str(), X_OK) != 0) return health::skipped(fmt::format("there is no {} (paths.perftest)", tool));
  const Share share = this_share();
  if (share.index > 0) return health::skipped("the first process of this node does it");
  const std::vector<MemoryNode> nodes = memory_nodes(evidence.root());
  const std::size_t gpus = evidence.gpus().gpus.size();
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);  // as the driver numbers them; this process is the check's own
  const health::ActiveConfig& expect = evidence.policy().active;
  std::vector<Rate> rates;
  std::vector<std::string> not_measured;
  int number = 0;
  // Returns whether there is a number.
  const auto measure = [&](const RdmaPort& port, const RdmaPlace& place, const std::string& entity) {
    const RdmaRun run = evidence.left_s() > kRdmaDeadline_s ? write_bandwidth(tool, port, port, place, number++)
                                                            : RdmaRun{.why = "no time was left"};
    if (run.gbps < 0) {
      not_measured.push_back(fmt::format("{}: {}", entity, run.why));
    } else {
      rates.push_back(rdma_rate(entity, run.gbps, port, expect));
    }
    return run.gbps >= 0;
  };
  bool knows_cuda = true;
  for (const RdmaPort& port : ports) {
    if (nodes.size() <= 1) measure(port, {}, port.name());
    for (std::size_t i = 0; nodes.size() > 1 && i < nodes.size(); ++i) {
      measure(port, {.node = &nodes[i]}, fmt::format("{} memory node {}", port.name(), nodes[i].number));
    }
    for (std::size_t gpu = 0; knows_cuda && gpu < gpus; ++gpu) {
      knows_cuda = measure(port, {.gpu = static_cast<int>(gpu)}, fmt::format("{} gpu {}", port.name(), gpu));
    }
  }
  return rdma_result(rates, not_measured, share, expect.min_fraction, "loopback in the adapter");
}

}  // namespace

extern constinit const health::Check kPerfRdma = {
    .code = "perf.rdma",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "an RDMA adapter that is slow to or from a NUMA node or a GPU",
    .needs = "an active RDMA port and perftest (paths.perftest)",
    .deadline_s = 60,
    .cost = health::Cost::seconds,
    .takes = health::kWire | health::kBus,
    .proved = kProvedFakePerftest,
    .explain =
        "Runs ib_write_bw of perftest from every active port to itself, 2 GB each time: once with memory in each NUMA "
        "node, on the cores of that node, and once in each GPU if perftest was built with CUDA. This is the loopback "
        "test of MegaScale. The adapter loops the data back, so the data cross PCIe twice, but not the cable. If one "
        "GPU gives no result, the others are not tried.\n\n"
        "It finds PCIe links with lost lanes, wrong settings of relaxed ordering or the IOMMU, and adapters in a wrong "
        "slot, which are often slow to one NUMA node only. The limit is active.rdma_gbps, or a built-in value of the "
        "adapter. Runs without a result are listed in the note. Not yet seen on real hardware, so it only warns.",
    .remedy = "See net.pcie and the BIOS's PCIe settings, and compare with the same adapter of another node.",
    .run = measure_rdma};

}  // namespace ms::diag
