// Sums over rows and over whole tensors, each in an order that depends on sizes only.
#include <algorithm>
#include <type_traits>

#include "column_sums.cuh"
#include "vector.cuh"

namespace ms::kernels {
namespace {

constexpr int kColumns = 32, kParts = 32;  // of a block that adds up partial sums
constexpr int kReadAtOnce = 16;            // partial sums of a thread: all of them, if there are 512 rows
constexpr int kThreads = 256;

// One thread adds part p of a column's partials, in order; then the parts are added, in order.
template <class T>
__global__ void __launch_bounds__(kColumns* kParts)
    add_partials_kernel(T* first_out, T* second_out, const float* partials, int blocks, std::int64_t stride,
                        std::int64_t cols, bool accumulate) {
  __shared__ float parts[kParts][kColumns + 1];
  const std::int64_t col = std::int64_t{blockIdx.x} * kColumns + threadIdx.x;
  const int each = (blocks + kParts - 1) / kParts, first = static_cast<int>(threadIdx.y) * each;
  T* out = blockIdx.y == 0 ? first_out : second_out;
  partials += blockIdx.y * cols;
  float sum = 0;
  if (col < cols) {
    const int end = min(first + each, blocks);
    for (int b = first; b < end; b += kReadAtOnce) {
      float v[kReadAtOnce];
#pragma unroll
      for (int i = 0; i < kReadAtOnce; ++i) v[i] = b + i < end ? partials[(b + i) * stride + col] : 0;
#pragma unroll
      for (int i = 0; i < kReadAtOnce; ++i) sum += v[i];
    }
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= cols) return;
  for (int p = 1; p < kParts; ++p) sum += parts[p][threadIdx.x];
  out[col] = from_float<T>(accumulate ? to_float(out[col]) + sum : sum);
}

// Sums rows b, b + gridDim.y, ... of a strip of columns; several are read at once and added in order. Two blocks of a
// multiprocessor that read eight have as many bytes in flight as four that read four, and write half of the partial
// sums.
constexpr int kAtOnce = 8, kMostPartials = 256;
template <class T, int kL>
__global__ void __launch_bounds__(kThreads, 2)  // tells the compiler that it may have the registers
    column_partials(float* partials, const T* x, std::int64_t rows, std::int64_t cols, std::int64_t ld) {
  const std::int64_t col = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kL;
  if (col >= cols) return;
  float sums[kL] = {};
  const std::int64_t step = gridDim.y;
  std::int64_t row = blockIdx.y;
  const auto add = [&](const Packed<T, kL>& v) {
#pragma unroll
    for (int i = 0; i < kL; ++i) sums[i] += v[i];
  };
  for (; row + (kAtOnce - 1) * step < rows; row += kAtOnce * step) {
    Packed<T, kL> v[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) v[k].load(x + (row + k * step) * ld + col);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) add(v[k]);
  }
  for (; row < rows; row += step) {
    Packed<T, kL> v;
    v.load(x + row * ld + col);
    add(v);
  }
  store_floats(partials + blockIdx.y * cols + col, sums);
}

template <class T>
__device__ double value(T x) {
  if constexpr (sizeof(T) == 8) {
    return x;
  } else {
    return static_cast<double>(to_float(x));
  }
}

// Each thread sums elements that are gridDim * blockDim apart, in order.
template <class T, bool kSquares>
__global__ void __launch_bounds__(kThreads)
    total_partials(double* partials, const T* x, std::int64_t rows, std::int64_t cols, std::int64_t ld) {
  __shared__ double shared[kWarp];
  double sum[1] = {0};
  const std::int64_t all = rows * cols, step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all; i += step) {
    const double v = value(x[rows == 1 || ld == cols ? i : i / cols * ld + i % cols]);
    sum[0] += kSquares ? v * v : v;
  }
  block_sum(sum, shared);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum[0];
}
// Likewise, in vectors of 16 bytes of flat memory.
template <class T>
__global__ void __launch_bounds__(kThreads) squares_partials(double* partials, const T* x, std::int64_t all) {
  constexpr int kL = kLanes<T, true>;
  __shared__ double shared[kWarp];
  double sum[1] = {0};
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads * kL;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kL; i < all; i += step) {
    Lanes<T, kL> v;
    v.load(x + i);
#pragma unroll
    for (int j = 0; j < kL; ++j) sum[0] += static_cast<double>(v.v[j]) * static_cast<double>(v.v[j]);
  }
  block_sum(sum, shared);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum[0];
}

__global__ void __launch_bounds__(kThreads) add_totals(double* out, const double* partials, int blocks, double scale) {
  __shared__ double shared[kWarp];
  double sum[1] = {0};
  for (int b = static_cast<int>(threadIdx.x); b < blocks; b += kThreads) sum[0] += partials[b];
  block_sum(sum, shared);
  if (threadIdx.x == 0) *out += scale * sum[0];
}

__global__ void clip_factor_kernel(float* factor, float* norm, const double* sum_squares, float max_norm,
                                   float skip_above) {
  const auto n = static_cast<float>(sqrt(*sum_squares));
  *norm = n;
  *factor = !isfinite(n) || n > skip_above ? 0.0F : max_norm > 0 && n > max_norm ? max_norm / n : 1.0F;
}

}  // namespace

void add_partials(Stream stream, Matrix out, Matrix second_out, const float* partials, int blocks, bool accumulate) {
  const unsigned sums = second_out.data != nullptr ? 2 : 1;
  const dim3 grid(static_cast<unsigned>((out.cols + kColumns - 1) / kColumns), sums), threads(kColumns, kParts);
  by_type(out.type, [&]<class T>(T) {
    launch(add_partials_kernel<T>, grid, threads, stream, as<T>(out), as<T>(second_out), partials, blocks,
           sums * out.cols, out.cols, accumulate);
  });
}

void column_sum(Stream stream, Matrix out, Matrix x, bool accumulate, void* scratch) {
  auto* partials = static_cast<float*>(scratch);
  const int blocks = static_cast<int>(std::min<std::int64_t>(x.rows, kMostPartials));
  by_type(x.type, [&]<class T>(T) {
    const auto run = [&]<int kL>(std::integral_constant<int, kL>) {
      const std::int64_t strips = (x.cols + kThreads * kL - 1) / (kThreads * kL);
      launch(column_partials<T, kL>, dim3(static_cast<unsigned>(strips), static_cast<unsigned>(blocks)), kThreads,
             stream, partials, as<T>(x), x.rows, x.cols, x.ld);
    };
    if (is_aligned(x)) {
      run(std::integral_constant<int, kLanes<T, true>>());
    } else {
      run(std::integral_constant<int, 1>());
    }
  });
  add_partials(stream, out, {}, partials, blocks, accumulate);
}

void sum_into(Stream stream, double* out, Matrix x, double scale, void* scratch) {
  auto* partials = static_cast<double*>(scratch);
  const auto blocks =
      static_cast<unsigned>(std::min<std::int64_t>(kTotals, (x.rows * x.cols + kThreads - 1) / kThreads));
  by_type_or_f64(x.type, [&]<class T>(T) {
    launch(total_partials<T, false>, blocks, kThreads, stream, partials, as<T>(x), x.rows, x.cols, x.ld);
  });
  launch(add_totals, 1, kThreads, stream, out, partials, static_cast<int>(blocks), scale);
}

void sum_squares(Stream stream, double* out, Matrix x, void* scratch) {
  auto* partials = static_cast<double*>(scratch);
  const std::int64_t all = x.rows * x.cols;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(kTotals, (all + kThreads - 1) / kThreads));
  if (x.type != Type::f64 && is_flat(x) && is_aligned(x)) {
    by_type(x.type,
            [&]<class T>(T) { launch(squares_partials<T>, blocks, kThreads, stream, partials, as<T>(x), all); });
  } else {
    by_type_or_f64(x.type, [&]<class T>(T) {
      launch(total_partials<T, true>, blocks, kThreads, stream, partials, as<T>(x), x.rows, x.cols, x.ld);
    });
  }
  launch(add_totals, 1, kThreads, stream, out, partials, static_cast<int>(blocks), 1.0);
}

void clip_factor(Stream stream, float* factor, float* norm, const double* sum_squares, float max_norm,
                 float skip_above) {
  launch(clip_factor_kernel, 1, 1, stream, factor, norm, sum_squares, max_norm, skip_above);
}

}  // namespace ms::kernels
