// perf.gpu: GEMMs and memory bandwidth of every GPU, by the kernels that train.
#include <map>
#include <mutex>

#include "base/clock.h"
#include "base/text.h"
#include "diag/gemm.h"
#include "diag/gpu.h"
#include "diag/rates.h"

namespace ms::diag {
namespace {

using tensor::DType;

constexpr double kGpuRate_s = 1;        // of each rate
constexpr double kWorthwhile_s = 1e-3;  // a GEMM that takes less does not fill the GPU
constexpr std::int64_t kLeastSide = 256;
constexpr std::int64_t kMostSide = 8192;
constexpr std::int64_t kMostBytes = std::int64_t{2} << 30;

struct GpuRates {
  double fp32_tflops = 0, bf16_tflops = 0, memory_gbps = 0;
  std::string model;
};

double tflops(tensor::Device& device, tensor::Stream& stream, DType dtype, const health::Evidence& evidence) {
  constexpr double kLargerCosts = 4 * 2;  // twice, at most: a slow host must not look like a GPU that hangs
  for (std::int64_t side = kLeastSide;; side *= 2) {
    const double begun_s = monotonic_s();
    const Gemm gemm(device, dtype, side);
    const double one_s = seconds_of(stream, gemm.op(), kWorthwhile_s);
    const bool larger_fits = kLargerCosts * (monotonic_s() - begun_s) + kGpuRate_s < evidence.left_s();
    if (one_s < kWorthwhile_s && side < kMostSide && larger_fits) continue;
    return gemm.flops() / seconds_of(stream, gemm.op(), kGpuRate_s) / 1e12;
  }
}

// Copies within the GPU's memory, which read and write every byte.
double memory_gbps(tensor::Device& device, tensor::Stream& stream) {
  const std::int64_t half = test_bytes(device, kMostBytes) / 2 / 256 * 256;
  const auto memory = device.allocate(static_cast<std::size_t>(2 * half + 2 * tensor::Arena::kAlignment), "copies");
  tensor::Arena arena(*memory);
  const tensor::Tensor from = arena.take(DType::f32, 1, half / 4), to = arena.take(DType::f32, 1, half / 4);
  return 2 * static_cast<double>(half) / seconds_of(stream, tensor::Copy{.dst = to, .src = from}, kGpuRate_s) / 1e9;
}

health::Result measure_gpu(health::Evidence& evidence) {
  const Share share = this_share();
  GpuSet set = find_gpus(evidence, share);
  if (set.nothing) return *set.nothing;
  std::mutex mutex;
  std::map<std::string, GpuRates> measured;
  std::vector<Finding> failed = on_each_gpu(set.gpus, [&](TestGpu& gpu) {
    const auto stream = gpu.device->make_stream("perf.gpu", tensor::StreamKind::compute);
    const GpuRates rates{.fp32_tflops = tflops(*gpu.device, *stream, DType::f32, evidence),
                         .bf16_tflops = tflops(*gpu.device, *stream, DType::bf16, evidence),
                         .memory_gbps = memory_gbps(*gpu.device, *stream),
                         .model = gpu.model};
    const std::lock_guard lock(mutex);
    measured[gpu.entity] = rates;
  });
  const health::ActiveConfig& expect = evidence.policy().active;
  std::vector<Rate> rates;
  for (const auto& [gpu, got] : measured) {
    const auto add = [&, &model = got.model, &entity = gpu](const char* what, double value, double expected,
                                                            const char* unit, const char* key) {
      rates.push_back({entity + " " + what, value, expected, unit, known_limit(model, key)});
    };
    add("fp32", got.fp32_tflops, expect.gpu_gemm_tflops_fp32, "TFLOP/s", "gpu_gemm_tflops_fp32");
    add("bf16", got.bf16_tflops, expect.gpu_gemm_tflops_bf16, "TFLOP/s", "gpu_gemm_tflops_bf16");
    add("memory", got.memory_gbps, expect.gpu_memory_gbps, "GB/s", "gpu_memory_gbps");
  }
  const std::string how = measured.empty() ? "" : measured.begin()->second.model;
  return with_findings(judge_rates(rates, expect.min_fraction, share, Scope::whole, how, kUnseen), std::move(failed));
}

}  // namespace

extern constinit const health::Check kPerfGpu = {
    .code = "perf.gpu",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "a GPU that does not start, or whose GEMMs or memory are slower than expected",
    .needs = kCuda,
    .deadline_s = 30,
    .blame = Blame::gpu,
    .cost = health::Cost::seconds,
    .takes = health::kGpus,
    .proved = kProvedEmulated,
    .explain =
        "Opens every GPU, allocates memory, and runs square GEMMs in fp32 and bf16 and copies within GPU memory, for a "
        "second each, on all GPUs at once. The size of the GEMMs doubles from 256 up to 8192 until one takes a "
        "millisecond.\n\n"
        "The limits are active.gpu_gemm_tflops_fp32, active.gpu_gemm_tflops_bf16 and active.gpu_memory_gbps, or "
        "built-in values of the model. Not yet seen on real hardware, so it only warns.",
    .remedy = "Look at nvidia-smi -q -d PERFORMANCE,CLOCK,POWER for heat, a power cap or fixed clocks.",
    .run = measure_gpu};

}  // namespace ms::diag
