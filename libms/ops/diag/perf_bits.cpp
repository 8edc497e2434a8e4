// perf.bits: every core computes the same bits as the others.
#include "diag/bits.h"
#include "diag/share.h"
#include "health/checks/check.h"

namespace ms::diag {
namespace {

constexpr double kSeconds = 4;

health::Result measure_bits(health::Evidence& evidence) {
  const Share share = this_share();
  const std::vector<UnitBits> bits =
      compute_bits(share.cpus, kSeconds, plain_hash(), kBitsSide, [&] { return evidence.left_s(); });
  health::Result result = health::judged(judge_bits(bits));
  if (result.findings.empty()) require_enough(bits);
  result.note = fmt::format("{} GEMMs of {} x {} compared ({})", num_gemms(bits), kBitsSide, kBitsSide, share.str());
  return result;
}

}  // namespace

extern constinit const health::Check kPerfBits = {
    .code = "perf.bits",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "a core whose results differ from those of other cores or change",
    .deadline_s = 20,
    .cost = health::Cost::seconds,
    .takes = health::kNode,
    .on_hang = std::nullopt,
    .explain =
        "A thread on each core repeats the same GEMM for some seconds in fp32 and bf16, on all cores at once. A hash "
        "of every result is compared with the most frequent result.\n\n"
        "A core with occasional wrong results corrupts training silently: the loss deteriorates and nothing is logged. "
        "Any difference is critical.",
    .remedy = "Take the node out of service and have the CPU of that core replaced.",
    .run = measure_bits};

}  // namespace ms::diag
