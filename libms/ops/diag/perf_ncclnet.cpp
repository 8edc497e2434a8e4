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
    .summary = "GPUs of the node that NCCL cannot connect over the network cards, wrong words, or less than expected",
    .needs = "two GPUs, and libms_cuda.so with NCCL",
    .deadline_s = 90,
    .cost = health::Cost::seconds,
    .takes = health::kGpus | health::kBus | health::kWire,
    .proved = kProvedEmulated,
    .explain =
        "perf.nccl with NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1: what GPUs of the node send each other goes out of "
        "its network cards and comes back, as it does between nodes: RDMA from the GPU's memory where the node has it, "
        "TCP where not. One node is enough to find a card, a cable to the switch, or a way between GPU and card that "
        "is slow or broken.\n\nJudged as perf.nccl, against active.gpu_net_gbps. GPUs share cards, so the number is "
        "of this node's make and is best compared with other nodes (ms-diag golden). Proved on an emulated NCCL, with "
        "cards that are slow for one GPU, and with none; never seen on hardware, so it warns.",
    .remedy =
        "Run perf.rdma and perf.rnics, which name the card; NCCL_DEBUG=INFO shows which card NCCL took for each "
        "GPU, and whether it used RDMA (NET/IB) or TCP (NET/Socket).",
    .run = measure_ncclnet};

}  // namespace ms::diag
