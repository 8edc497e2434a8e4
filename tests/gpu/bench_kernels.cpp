// gpu_bench: kernels that are parts of ops and collectives: fp8 quantization, and sums over the ranks that share a GPU.
// Launched directly, without the op list.
#include "bench.h"
#include "kernels/launch.h"
#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/cuda_stream.h"

namespace ms::tensor::bench {
namespace {

// Returns a function that issues a kernel on the stream of `tensors`.
template <class Launch>
std::function<void()> on(Tensors& tensors, Launch launch) {
  auto& stream = dynamic_cast<CudaStream&>(tensors.stream());
  return [&stream, launch] {
    stream.launch([&launch](kernels::Stream on) {
      launch(on);
      check_launch("a kernel");
    });
  };
}

kernels::Matrix matrix_of(const Tensor& x) { return {x.data, x.rows, x.cols, x.ld, kernels::Type::bf16}; }

// Operands of llama-8b's matmuls; e4m3 and e5m2 cost the same.
void measure_fp8(Bench& bench) {
  const std::int64_t rows = bench.size(8192), cols = bench.size(14336);
  const std::string shape = fmt::format("bf16 {}x{}", rows, cols);
  const auto numbers = static_cast<double>(rows * cols);
  struct Part {
    Tensor x, to, amax, back;
  };
  const auto part = [=](Tensors& t) -> Part {
    return {t.normal(kBf16, rows, cols), t.zeros(kBf16, rows, cols), t.zeros(DType::f32, 1, 1),
            t.zeros(DType::f32, 1, 1)};
  };
  bench.moves({.kernel = "fp8: amax",
               .shape = shape,
               .make =
                   [=](Tensors& t) {
                     return on(t, [at = part(t)](kernels::Stream stream) {
                       kernels::compute_amax(stream, at.amax.as<float>(), matrix_of(at.x));
                     });
                   },
               .bytes = 2 * numbers});
  for (const bool transposed : {false, true}) {
    bench.moves({.kernel = transposed ? "fp8: to columns" : "fp8: to rows",
                 .shape = shape,
                 .make =
                     [=](Tensors& t) {
                       return on(t, [transposed, at = part(t)](kernels::Stream stream) {
                         kernels::fp8_quantize(stream, at.to.data, at.back.as<float>(), matrix_of(at.x),
                                               at.amax.as<float>(), false, transposed);
                       });
                     },
                 .bytes = 3 * numbers});
  }
  for (const bool summed : {false, true}) {
    const auto scratch = static_cast<std::int64_t>(kernels::fp8_sums_bytes(rows, cols) / sizeof(float));
    bench.moves({.kernel = summed ? "fp8: both ways, sums" : "fp8: both ways",
                 .shape = shape,
                 .make =
                     [=](Tensors& t) {
                       const Tensor out = t.zeros(DType::f32, 1, cols), partials = t.zeros(DType::f32, 1, scratch);
                       const kernels::Fp8Sums sums{matrix_of(out), true, partials.data};
                       return on(t, [=, at = part(t)](kernels::Stream stream) {
                         kernels::fp8_quantize_both(stream, at.to.data, at.to.data + rows * cols, at.back.as<float>(),
                                                    matrix_of(at.x), at.amax.as<float>(), false,
                                                    summed ? sums : kernels::Fp8Sums{});
                       });
                     },
                 .bytes = 4 * numbers});
  }
}

void measure_reduce(Bench& bench, int ranks, kernels::Type type) {
  const DType dtype = type == kernels::Type::bf16 ? kBf16 : DType::f32;
  const std::int64_t n = bench.size(1024) * bench.size(16384);
  bench.moves({.kernel = fmt::format("sum over {} ranks", ranks),
               .shape = fmt::format("{} {}", to_string(dtype), n),
               .make =
                   [=](Tensors& t) {
                     std::vector<const void*> inputs;
                     for (int i = 0; i < ranks; ++i) inputs.push_back(t.normal(dtype, 1, n).data);
                     const Tensor out = t.zeros(dtype, 1, n);
                     return on(t, [=](kernels::Stream stream) {
                       kernels::reduce(stream, false, type, out.data, inputs.data(), ranks, n);
                     });
                   },
               .bytes = static_cast<double>((ranks + 1) * n * size_of(dtype))});
}

}  // namespace

void measure_kernels(Bench& bench) {
  bench.section("kernels", "parts of operations; shares of the copy's bandwidth");
  measure_fp8(bench);
  for (const int ranks : {2, 8}) {
    for (const auto type : {kernels::Type::bf16, kernels::Type::f32}) measure_reduce(bench, ranks, type);
  }
}

}  // namespace ms::tensor::bench
