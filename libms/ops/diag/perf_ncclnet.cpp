// perf.ncclnet: the same exchange with NCCL's ways inside the node switched off, so that it goes over the node's cards.
#include <cstdlib>

#include "diag/gpu.h"
#include "diag/nccl_exchange.h"

namespace ms::diag {
namespace {

health::Result measure_ncclnet(health::Evidence& evidence) {
  ::setenv("NCCL_P2P_DISABLE", "1", 1);  // this process is the check's own
  ::setenv("NCCL_SHM_DISABLE", "1", 1);
  return exchange_by_nccl(evidence, evidence.policy().active.gpu_net_gbps);
}

}  // namespace

extern constinit const health::Check kPerfNcclnet = {
    .code = "perf.ncclnet",
    .level = 3,
    .lane = health::Lane::active,
    .summary = "NCCL between GPUs of the node over its network adapters: failed, wrong, or slower than expected",
    .needs = "two GPUs, and libms_cuda.so with NCCL",
    .deadline_s = 90,
    .cost = health::Cost::seconds,
    .takes = health::kGpus | health::kBus | health::kWire,
    .proved = kProvedEmulated,
    .explain =
        "Runs perf.nccl with NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1. Data between GPUs of the node then pass "
        "through its network adapters as between nodes, with GPUDirect RDMA if the node has it, else over TCP. A "
        "single node is enough to find a slow or broken adapter, cable to the switch, or path between GPU and "
        "adapter.\n\n"
        "The results are judged as in perf.nccl, with the limit active.gpu_net_gbps. GPUs share adapters, so the "
        "result depends on the type of node and is best compared with other nodes (ms-diag golden). Tested on an "
        "emulated NCCL, with adapters that are slow for one GPU, and without adapters. Not yet seen on real hardware, "
        "so it only warns.",
    .remedy =
        "Run perf.rdma and perf.rnics, which name the adapter. NCCL_DEBUG=INFO shows the adapter that NCCL selected "
        "for each GPU, and whether it used RDMA (NET/IB) or TCP (NET/Socket).",
    .run = measure_ncclnet};

}  // namespace ms::diag
