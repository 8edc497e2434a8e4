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
    .summary = "a core that under long load computes wrong results or is throttled",
    .deadline_s = 60,
    .cost = health::Cost::seconds,
    .takes = health::kNode,
    .soaks = true,
    .proved = "a real node, throttling on a fake file tree",
    .on_hang = std::nullopt,
    .explain =
        "Runs the GEMMs of perf.bits on all cores for the time given with --soak and compares every result bit for "
        "bit. It also counts how often the kernel throttled each core because of heat (thermal_throttle in sysfs, if "
        "available).\n\n"
        "A core that fails only when hot passes the four seconds of perf.bits. A different result is critical; "
        "throttling under full load is a warning.",
    .remedy = "Take a node with wrong results out of service; for heat, check fans, dust and coolant.",
    .run = soak_cpu};

}  // namespace ms::diag
