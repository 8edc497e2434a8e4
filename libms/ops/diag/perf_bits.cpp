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
    .summary = "a core that computes other bits than the rest, or than before",
    .deadline_s = 20,
    .cost = health::Cost::seconds,
    .takes = health::kNode,
    .on_hang = std::nullopt,
    .explain =
        "A thread bound to each core computes the same GEMM again and again for some seconds, in fp32 and bf16, "
        "all cores at once, and every result is compared bit for bit, by a hash, with what most of them "
        "computed.\n\nA core that computes something else now and then corrupts training silently: the loss goes "
        "wrong and "
        "nothing is logged anywhere. There is no normal number of differences but zero, so one is critical.",
    .remedy = "Take the node out of service and have the processor of that core replaced.",
    .run = measure_bits};

}  // namespace ms::diag
