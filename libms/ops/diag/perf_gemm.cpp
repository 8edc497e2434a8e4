// perf.gemm: square GEMMs by the same kernels that train, in fp32 and bf16.
#include <functional>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "diag/gemm.h"
#include "diag/rates.h"
#include "diag/works.h"
#include "tensor/cpu_device.h"

namespace ms::diag {
namespace {

using tensor::DType;

double gflops(tensor::Device& device, DType dtype, Pace& pace, const std::function<double()>& left_s) {
  const std::unique_ptr<tensor::Stream> stream = device.make_stream("gemm", tensor::StreamKind::compute);
  std::optional<Gemm> gemm;
  for (std::int64_t side = 0; pace.more();) {
    const double begun_s = monotonic_s();
    if (side != pace.size()) gemm.emplace(device, dtype, side = pace.size());
    stream->submit(gemm->op());
    stream->synchronize();
    pace.ended(monotonic_s() - begun_s, left_s());
  }
  pace.require_measured();
  return gemm->flops() * pace.rounds() / pace.total_s() / 1e9;
}

health::Result measure_gemm(health::Evidence& evidence) {
  const Share share = this_share();
  const OnCpus bound(share.cpus);
  tensor::MatmulCache matmuls;
  tensor::CpuPool pool({.workers = 1, .threads_per_op = static_cast<int>(share.cpus.size())});
  tensor::CpuDevice device(pool, matmuls);
  Pace fp32(gemm_work(share.cpus.size())), bf16(fp32.work());
  const double fp32_gflops = gflops(device, DType::f32, fp32, [&] { return evidence.left_s() / 2; });
  const double bf16_gflops = gflops(device, DType::bf16, bf16, [&] { return evidence.left_s(); });
  const health::ActiveConfig& expect = evidence.policy().active;
  return judge_rates({{"fp32", fp32_gflops, expect.gemm_gflops_fp32, "GFLOP/s"},
                      {"bf16", bf16_gflops, expect.gemm_gflops_bf16, "GFLOP/s"}},
                     expect.min_fraction, share, Scope::cores,
                     fmt::format("{}, sides of {} and {}{}", share.str(), fp32.size(), bf16.size(),
                                 tensor::cpu_isa() >= tensor::CpuIsa::avx512_bf16 ? "" : ", bf16 computed in fp32"));
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
    .on_hang = std::nullopt,
    .explain =
        "Runs square GEMMs in fp32 and bf16 with the kernels of training on all cores, for a second and a half each. "
        "The sizes are 1024 to 4096, depending on the number of cores, or a quarter of that on slow nodes. On CPUs "
        "without bf16 instructions, bf16 GEMMs are computed in fp32, which the note reports.\n\n"
        "It finds cores that are throttled by heat or power, or limited by the BIOS. The limits are "
        "active.gemm_gflops_fp32 and active.gemm_gflops_bf16. It loads the CPU on nodes with GPUs too.",
    .remedy = "Look at temperatures, fans and power limits of the node, and at what else runs on it.",
    .run = measure_gemm};

}  // namespace ms::diag
