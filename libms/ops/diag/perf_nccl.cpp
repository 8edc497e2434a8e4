// perf.nccl: all GPUs of the node exchange blocks over NCCL, by the ways that it chooses between them.
#include "diag/gpu.h"
#include "diag/nccl_exchange.h"

namespace ms::diag {
namespace {

health::Result measure_nccl(health::Evidence& evidence) {
  return exchange_by_nccl(evidence, evidence.policy().active.gpu_a2a_gbps);
}

}  // namespace

extern constinit const health::Check kPerfNccl = {
    .code = "perf.nccl",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "all-to-all over NCCL between GPUs of the node: failed, wrong, or slower than expected",
    .needs = "two GPUs, and libms_cuda.so with NCCL",
    .deadline_s = 60,
    .blame = Blame::gpu,
    .cost = health::Cost::seconds,
    .takes = health::kGpus | health::kBus,
    .proved = kProvedEmulated,
    .explain =
        "The visible GPUs, each a rank, exchange blocks over NCCL. In each round every GPU sends to and receives from "
        "one partner for a fifth of a second, until all pairs are done. The last received block of each pair is "
        "verified.\n\n"
        "The result of a GPU is the lower median of the rates of its pairs per direction; the limit is "
        "active.gpu_a2a_gbps. A GPU is also slow if, twice in a row, its best pair has less than half of the typical "
        "rate of pairs without it; this needs at least four GPUs. A GPU that sends wrong data to all others, or for "
        "which its peers wait, is named. The NCCL ranks are the GPUs in order. Compared with perf.gpucopy, which "
        "copies without NCCL, it shows the transport that NCCL selects, for example shared memory instead of NVLink. "
        "Tested on an emulated NCCL with a slow GPU, a GPU that sends wrong data and a GPU that hangs. Not yet seen on "
        "real hardware, so it only warns.",
    .remedy =
        "Compare nvidia-smi topo -m with a node that is not slow: a GPU that is alone on its socket, or lacks NVLink, "
        "is slower by design. Otherwise look at gpu.nvlink, gpu.pcie and gpu.xid. If they show nothing, reset the GPU, "
        "and report it to the vendor if the fault recurs.",
    .run = measure_nccl};

}  // namespace ms::diag
