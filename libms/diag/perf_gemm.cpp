// perf.gemm: square GEMMs by the same kernels that train, in fp32 and bf16.
#include <memory>

#include "diag/gemm.h"
#include "diag/rates.h"
#include "tensor/cpu_device.h"

namespace ms::diag {
namespace {

using tensor::DType;

constexpr double kGemm_s = 1.5;  // of each type

// Large enough that all cores have work, small enough that one GEMM takes no second on an old core.
std::int64_t side_for(std::size_t cores) { return cores <= 4 ? 1024 : cores <= 32 ? 2048 : 4096; }

double gflops(tensor::Device& device, DType dtype, std::int64_t side) {
  const Gemm gemm(device, dtype, side);
  const std::unique_ptr<tensor::Stream> stream = device.make_stream("gemm", tensor::StreamKind::compute);
  return gemm.flops() / seconds_of(*stream, gemm.op(), kGemm_s) / 1e9;
}

health::Result measure_gemm(health::Evidence& evidence) {
  const Share share = this_share();
  const OnCpus bound(share.cpus);
  tensor::MatmulCache matmuls;
  tensor::CpuPool pool({.workers = 1, .threads_per_op = static_cast<int>(share.cpus.size())});
  tensor::CpuDevice device(pool, matmuls);
  const std::int64_t side = side_for(share.cpus.size());
  const health::ActiveConfig& expect = evidence.policy().active;
  return judge_rates({{"fp32", gflops(device, DType::f32, side), expect.gemm_gflops_fp32, "GFLOP/s"},
                      {"bf16", gflops(device, DType::bf16, side), expect.gemm_gflops_bf16, "GFLOP/s"}},
                     expect.min_fraction, share, Scope::cores,
                     fmt::format("{}, {} x {}{}", share.str(), side, side,
                                 matmuls.native_bf16() ? "" : ", bf16 computed in fp32: no such instructions here"));
}

}  // namespace

extern constinit const health::Check kPerfGemm = {
    .code = "perf.gemm",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "GEMMs slower than expected",
    .deadline_s = 20,
    .cost = health::Cost::seconds,
    .takes = health::kNode,
    .explain =
        "Square GEMMs in fp32 and bf16 with the same kernels that train, on all cores, for a second and a half "
        "each. Where the processor has no bf16 instructions, GEMMs of bf16 numbers are computed in fp32 and the "
        "note says so.\n\nCores that are throttled by heat or power, or capped by the BIOS, show here. Judged "
        "against active.gemm_gflops_fp32 and active.gemm_gflops_bf16. It loads the CPU, also on nodes with GPUs.",
    .remedy = "Look at temperatures, fans and power limits of the node, and at what else runs on it.",
    .run = measure_gemm};

}  // namespace ms::diag
