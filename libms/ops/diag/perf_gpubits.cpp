// perf.gpubits: every GPU computes the same bits as the others, and as before.
#include "base/text.h"
#include "diag/gpu_bits.h"
#include "diag/rates.h"

namespace ms::diag {
namespace {

constexpr double kGpuBits_s = 4;

health::Result measure_gpubits(health::Evidence& evidence) {
  GpuSet set = find_gpus(evidence, this_share());
  if (set.nothing) return *set.nothing;
  GpuBits bits = compute_gpu_bits(set.gpus, kGpuBits_s, plain_hash());
  health::Result result = with_findings(health::judged(judge_bits(bits.units, kUnseen)), std::move(bits.failed));
  result.note = fmt::format("{} GEMMs of {} x {} compared on {}", num_gemms(bits.units), bits.side, bits.side,
                            plural(set.gpus.size(), "GPU"));
  return result;
}

}  // namespace

extern constinit const health::Check kPerfGpubits = {
    .code = "perf.gpubits",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "a GPU whose results differ from those of other GPUs or change",
    .needs = kCuda,
    .deadline_s = 30,
    .blame = Blame::gpu,
    .cost = health::Cost::seconds,
    .takes = health::kGpus,
    .proved = kProvedEmulated,
    .explain =
        "All GPUs repeat the same GEMM for some seconds in fp32 and bf16. A hash of every result is compared with the "
        "most frequent result of all GPUs of the same model.\n\n"
        "A GPU with occasional wrong results corrupts training silently. Any difference is a fault. Not yet seen on "
        "real hardware, so it only warns.",
    .remedy = "Take the GPU out of service and run its vendor's field diagnostics.",
    .run = measure_gpubits};

}  // namespace ms::diag
