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
    .summary = "all-to-all between the GPUs of the node over NCCL that fails, is wrong, or is slower than expected",
    .needs = "two GPUs, and libms_cuda.so with NCCL",
    .deadline_s = 60,
    .blame = Blame::gpu,
    .cost = health::Cost::seconds,
    .takes = health::kGpus | health::kBus,
    .proved = kProvedEmulated,
    .explain =
        "The GPUs that this process sees, each a rank of the engine's own communicators, exchange blocks over NCCL: in "
        "each round of a tournament every GPU sends to a partner and receives from it at once, for a fifth of a "
        "second, "
        "until it had every other one. Each word of what a pair received last is verified.\n\nThe number of a GPU is "
        "the lower median of what its pairs reach each way, judged against active.gpu_a2a_gbps. By itself, a GPU is "
        "slow if its best pair is below half of what pairs without it typically reach, twice in a row; among fewer "
        "than four GPUs that cannot be told. A GPU whose words are wrong at all others is named, and so is one whose "
        "peers wait for it. NCCL's ranks are the GPUs in their order. Beside perf.gpucopy, which copies without NCCL, "
        "it shows what NCCL makes of the node: shared memory where NVLink was meant. Proved on an emulated NCCL, with "
        "a GPU that is slow, one that sends wrong words and one that hangs; never seen on hardware, so it warns.",
    .remedy =
        "Compare nvidia-smi topo -m with a node that is not slow: a GPU that is alone on its socket, or has no "
        "NVLink where the others have, is slower by design. Otherwise look at gpu.nvlink, gpu.pcie and gpu.xid; "
        "if they show nothing, reset the GPU, and report it to the vendor if it comes back.",
    .run = measure_nccl};

}  // namespace ms::diag
