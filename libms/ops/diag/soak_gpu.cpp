// soak.gpu: every GPU under full load for long: the same bits, and clocks, power and temperature meanwhile.
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/text.h"
#include "diag/gpu_bits.h"
#include "diag/heat.h"
#include "diag/rates.h"

namespace ms::diag {
namespace {

constexpr double kWarmUp = 0.25;  // the part of the soak in which clocks may still rise
constexpr std::chrono::milliseconds kEach{500};

// Looks at the GPUs from time to time, until it is destroyed.
class HeatWatch {
 public:
  HeatWatch(const std::string& nvml, double warm_up_s)
      : thread_([this, nvml, warm_up_s](const std::stop_token& stop) {
          std::mutex mutex;
          std::unique_lock lock(mutex);
          std::condition_variable_any wake;
          const auto sleep = [&](auto time) {
            return !wake.wait_for(lock, stop, time, [] { return false; }) && !stop.stop_requested();
          };
          if (!sleep(std::chrono::duration<double>(warm_up_s))) return;
          do heats_.look(health::read_gpus(nvml));
          while (sleep(kEach));
        }) {}
  const std::map<int, GpuHeat>& end() {
    thread_ = {};
    return heats_.all();
  }

 private:
  GpuHeats heats_;
  std::jthread thread_;  // last: it ends before what it writes to
};

health::Result soak_gpu(health::Evidence& evidence) {
  GpuSet set = find_gpus(evidence, this_share());
  if (set.nothing) return *set.nothing;
  const double soak_s = evidence.asked().soak_s;
  HeatWatch watch(evidence.policy().paths.nvml, kWarmUp * soak_s);
  GpuBits bits = compute_gpu_bits(set.gpus, soak_s, plain_hash());
  const std::map<int, GpuHeat>& heats = watch.end();
  std::vector<Finding> more = judge_heat(heats);
  more.insert(more.end(), bits.failed.begin(), bits.failed.end());
  health::Result result = with_findings(health::judged(judge_bits(bits.units, kUnseen)), std::move(more));
  std::vector<std::string> hottest;
  for (const auto& [gpu, heat] : heats) {
    if (heat.temperature_c && heat.power_w) {
      hottest.push_back(fmt::format("gpu {} {:.0f} C {:.0f} W", gpu, *heat.temperature_c, *heat.power_w));
    }
  }
  result.note =
      fmt::format("{} GEMMs of {} x {} compared on {}, at most {}", num_gemms(bits.units), bits.side, bits.side,
                  plural(set.gpus.size(), "GPU"),
                  hottest.empty() ? "unknown heat: NVML tells none" : fmt::format("{}", fmt::join(hottest, ", ")));
  return result;
}

}  // namespace

extern constinit const health::Check kSoakGpu = {
    .code = "soak.gpu",
    .level = 3,
    .lane = health::Lane::active,
    .summary = "a GPU that under long load computes wrong results, is slowed down, or falls behind the others",
    .needs = kCuda,
    .deadline_s = 60,
    .blame = Blame::gpu,
    .cost = health::Cost::seconds,
    .takes = health::kGpus,
    .soaks = true,
    .proved = "an emulated GPU and a fake NVML",
    .explain =
        "Runs the GEMMs of perf.gpubits on all GPUs for the time given with --soak and compares every result bit for "
        "bit. After a quarter of that time, it reads clocks, power, temperature and clock limit reasons from NVML "
        "twice a second.\n\n"
        "It warns of a hardware slowdown and, with at least three GPUs, of a minimum clock more than a tenth below the "
        "median: one hot GPU delays every step. Not yet seen on real hardware, so it only warns.",
    .remedy =
        "Check fans, air flow or coolant and power supplies. Swap in a cool GPU to see whether the GPU or the slot is "
        "at fault.",
    .run = soak_gpu};

}  // namespace ms::diag
