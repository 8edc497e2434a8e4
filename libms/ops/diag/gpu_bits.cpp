#include "diag/gpu_bits.h"

#include <algorithm>
#include <chrono>
#include <mutex>

#include "diag/gemm.h"

namespace ms::diag {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLeastGpuRounds = 8;
constexpr double kWorthwhile_s = 5e-5;  // for a GEMM, beside copying and hashing its result
constexpr std::int64_t kLeastSide = 128;
constexpr std::int64_t kMostSide = 2048;

double one_gemm_s(tensor::Stream& stream, const Gemm& gemm) {
  const Clock::time_point start = Clock::now();
  stream.submit(gemm.op());
  stream.synchronize();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// All GPUs take the same side, or their results could not be compared: the first one decides.
std::int64_t side_of(tensor::Device& device) {
  const auto stream = device.make_stream("side", tensor::StreamKind::compute);
  std::int64_t side = kLeastSide;
  for (; side < kMostSide; side *= 2) {
    const Gemm gemm(device, tensor::DType::bf16, side);
    one_gemm_s(*stream, gemm);  // makes the kernel
    if (one_gemm_s(*stream, gemm) >= kWorthwhile_s) break;
  }
  return side;
}

std::vector<UnitBits> on_gpu(TestGpu& gpu, std::int64_t side, double seconds, const HashFunction& hash) {
  const Gemm gemms[] = {{*gpu.device, tensor::DType::f32, side}, {*gpu.device, tensor::DType::bf16, side}};
  std::vector<UnitBits> bits{{gpu.entity, "fp32 on " + gpu.model}, {gpu.entity, "bf16 on " + gpu.model}};
  const auto stream = gpu.device->make_stream("bits", tensor::StreamKind::compute);
  const auto host = gpu.device->allocate_host(static_cast<std::size_t>(gemms[0].c().size_bytes()), "results");
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (int round = 0; round < kLeastGpuRounds || Clock::now() < end; ++round) {
    for (std::size_t i = 0; i < bits.size(); ++i) {
      tensor::Tensor result = gemms[i].c();
      result.data = host->data();
      stream->submit(gemms[i].op());
      stream->submit(tensor::Copy{.dst = result, .src = gemms[i].c()});
      stream->synchronize();
      bits[i].count(hash(gpu.entity, {result.data, static_cast<std::size_t>(result.size_bytes())}));
    }
  }
  return bits;
}

}  // namespace

GpuBits compute_gpu_bits(std::vector<TestGpu>& gpus, double seconds, const HashFunction& hash) {
  GpuBits all;
  std::mutex mutex;
  all.failed = on_each_gpu(gpus, [&](TestGpu& gpu) {
    const std::lock_guard lock(mutex);
    if (all.side == 0) all.side = side_of(*gpu.device);
  });
  std::erase_if(gpus, [&](const TestGpu& gpu) {
    return std::any_of(all.failed.begin(), all.failed.end(), [&](const Finding& f) { return f.entity == gpu.entity; });
  });
  std::vector<Finding> failed = on_each_gpu(gpus, [&](TestGpu& gpu) {
    const std::vector<UnitBits> bits = on_gpu(gpu, all.side, seconds, hash);
    const std::lock_guard lock(mutex);
    all.units.insert(all.units.end(), bits.begin(), bits.end());
  });
  all.failed.insert(all.failed.end(), failed.begin(), failed.end());
  return all;
}

}  // namespace ms::diag
