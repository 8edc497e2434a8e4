// soak.cpu: every core under full load for long: the same bits, and no throttling.
#include "base/text.h"
#include "diag/bits.h"
#include "diag/heat.h"
#include "diag/rates.h"

namespace ms::diag {
namespace {

health::Result soak_cpu(health::Evidence& evidence) {
  const Share share = this_share();
  const CpuHeat before = cpu_heat(evidence.root(), share.cpus);
  const std::vector<UnitBits> bits =
      compute_bits(share.cpus, evidence.asked().soak_s, plain_hash(), kBitsSide, [&] { return evidence.left_s(); });
  std::vector<Finding> throttled = judge_heat(before, cpu_heat(evidence.root(), share.cpus));
  health::Result result = with_findings(health::judged(judge_bits(bits)), std::move(throttled));
  if (result.findings.empty()) require_enough(bits);
  result.note = fmt::format("{} GEMMs of {} x {} compared ({}){}", num_gemms(bits), kBitsSide, kBitsSide, share.str(),
                            before.throttles.empty() ? ", the kernel counts no throttling here" : "");
  return result;
}

}  // namespace

extern constinit const health::Check kSoakCpu = {
    .code = "soak.cpu",
    .level = 3,
    .lane = health::Lane::active,
    .summary = "a core that under long load computes other bits than the rest, or is throttled",
    .deadline_s = 60,
    .cost = health::Cost::seconds,
    .takes = health::kNode,
    .soaks = true,
    .proved = "a real node, throttling on a fake root",
    .on_hang = std::nullopt,
    .explain =
        "The GEMMs of perf.bits on all cores for as long as --soak says, every result compared bit for bit; and how "
        "often the kernel throttled each core for heat meanwhile (thermal_throttle of sysfs, where the processor has "
        "it).\n\nA core that only fails when it is hot passes in four seconds. A different result is critical; "
        "throttling under full load is a warning.",
    .remedy = "Take a core that computes wrong out of service with its node; for heat look at fans, dust and coolant.",
    .run = soak_cpu};

}  // namespace ms::diag
