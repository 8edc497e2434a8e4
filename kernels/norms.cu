// LayerNorm and RMSNorm. The registers of a block, or for short rows of a warp, hold a row, so that memory is read
// once. In the backward, blocks stride over rows and keep column sums of theirs; a second launch adds those up, in
// block order.
#include <algorithm>

#include "amax.cuh"
#include "column_sums.cuh"
#include "norm_rows.h"
#include "vector.cuh"

namespace ms::kernels {
namespace {

// An absent a means that x is an input.
template <class T>
struct Sum {
  const T *a, *b, *bias;
  std::int64_t a_ld, b_ld;
};

// Returns the threads of a row: kThreads, or if that is 0, those of the block.
template <int kThreads>
__device__ int threads_of_row() {
  return kThreads > 0 ? kThreads : static_cast<int>(blockDim.x);
}

// Calls f(p, column) for this thread's packs of a row.
template <int kL, int kPacks, int kThreads = 0, class F>
__device__ void each_pack(int cols, F&& f) {
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int col = (p * threads_of_row<kThreads>() + static_cast<int>(threadIdx.x)) * kL;
    if (col < cols) f(p, col);
  }
}

// Returns where a row starts, or head `row` of all heads of all rows.
__device__ std::int64_t start_of(std::int64_t row, int heads, std::int64_t ld, int cols) {
  return heads == 1 ? row * ld : row / heads * ld + row % heads * cols;
}

// Numbers as they lie in memory: half of the registers if they are bf16, and the same bits, as sums are rounded anyway.
template <class T, int kL>
__device__ Packed<T, kL> packed(const Lanes<T, kL>& numbers) {
  Packed<T, kL> to;
#pragma unroll
  for (int i = 0; i < kL; ++i) reinterpret_cast<T*>(&to)[i] = from_float<T>(numbers.v[i]);
  return to;
}
template <class T, int kL>
__device__ void store(T* to, const Packed<T, kL>& numbers) {
  if constexpr (kL == 1) {
    *to = numbers.v;
  } else {
    __stwb(reinterpret_cast<uint4*>(to), numbers.bits);
  }
}

constexpr int kTogether = 2;  // packs of a second operand that are read at once; there are no registers for more

// Loads this thread's part of a row of x, after summing and storing it if there is a residual. Everything is read
// before anything is written, so that no read waits for a write.
template <int kThreads, class T, int kL, int kPacks>
__device__ void load_row(Packed<T, kL> (&v)[kPacks], T* x, const Sum<T>& sum, std::int64_t row, int cols) {
  const T* from = sum.a != nullptr ? sum.a + row * sum.a_ld : x;
  each_pack<kL, kPacks, kThreads>(cols, [&](int p, int col) { v[p].load(from + col); });
  if (sum.a == nullptr) return;
#pragma unroll
  for (int first = 0; first < kPacks; first += kTogether) {
    const auto each = [&](auto&& f) {
      each_pack<kL, kPacks, kThreads>(cols, [&](int p, int col) {
        if (p >= first && p < first + kTogether) f(p, col, p % kTogether);
      });
    };
    Packed<T, kL> b[kTogether];
    each([&](int, int col, int i) { b[i].load(sum.b + row * sum.b_ld + col); });
    each([&](int p, int col, int i) {
      Packed<T, kL> bias;
      if (sum.bias != nullptr) bias.load(sum.bias + col);
      Lanes<T, kL> total;
#pragma unroll
      for (int j = 0; j < kL; ++j) {
        total.v[j] = v[p][j] + b[i][j];
        if (sum.bias != nullptr) total.v[j] += bias[j];
      }
      v[p] = packed(total);
    });
  }
  each_pack<kL, kPacks, kThreads>(cols, [&](int p, int col) { store(x + col, v[p]); });
}

// The mean of a row, or 0 unless the norm is centred, and the sum of the squares of x - mean.
struct Moments {
  float mean, squares;
};

// Returns the moments of the row of which this thread has `v`. Each warp finds those of its columns; one barrier later
// they are combined (Chan, Golub, LeVeque 1979): with n columns, their sum s and squares q of each warp, mean = sum(s)
// / cols, squares = sum(q + n (s / n - mean)^2). If a row has one warp there is no barrier.
template <int kThreads, bool kCentred, class T, int kL, int kPacks>
__device__ Moments moments_of(const Packed<T, kL> (&v)[kPacks], int cols, float* shared) {
  const auto columns_of = [&](int warp) {
    int columns = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      columns += min(max(cols - (p * threads_of_row<kThreads>() + warp * kWarp) * kL, 0), kWarp * kL);
    return static_cast<float>(max(columns, 1));
  };
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = threads_of_row<kThreads>() / kWarp;
  float sum = 0, mean = 0, squares = 0;
  if constexpr (kCentred) {
    each_pack<kL, kPacks, kThreads>(cols, [&](int p, int) {
#pragma unroll
      for (int i = 0; i < kL; ++i) sum += v[p][i];
    });
    sum = warp_sum(sum);
    mean = sum / columns_of(warp);
  }
  each_pack<kL, kPacks, kThreads>(cols, [&](int p, int) {
#pragma unroll
    for (int i = 0; i < kL; ++i) squares += (v[p][i] - mean) * (v[p][i] - mean);
  });
  squares = warp_sum(squares);
  if (warps == 1) return {mean, squares};
  if (lane == 0) shared[warp] = sum, shared[kWarp + warp] = squares;
  __syncthreads();
  sum = lane < warps ? shared[lane] : 0;
  squares = lane < warps ? shared[kWarp + lane] : 0;
  if constexpr (kCentred) {
    mean = warp_sum(sum) / static_cast<float>(cols);
    const float columns = columns_of(lane), apart = sum / columns - mean;
    if (lane < warps) squares += columns * apart * apart;
  }
  return {mean, warp_sum(squares)};
}

// A block has blockDim.y rows of blockDim.x threads each: several if kThreads says that a row is one warp's.
template <class T, int kL, int kPacks, bool kCentred, int kThreads>
__global__ void __launch_bounds__(most_fwd_threads(kL, kPacks, kThreads), least_fwd_blocks(kL, kPacks, kThreads))
    norm_fwd(T* y, std::int64_t y_ld, float* mean_out, float* rstd_out, T* x, std::int64_t x_ld, const T* gain,
             const T* bias, std::int64_t rows, int cols, float eps, Sum<T> residual, int heads, float* amax) {
  __shared__ float shared[2 * kWarp];
  __shared__ unsigned magnitudes[kWarp];
  if constexpr (kCentred) heads = 1;  // known to the compiler, it saves registers
  const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const auto at = [&](std::int64_t ld) { return start_of(row, heads, ld, cols); };
  Packed<T, kL> v[kPacks];
  load_row<kThreads>(v, x + at(x_ld), residual, row, cols);
  const auto [mean, squares] = moments_of<kThreads, kCentred>(v, cols, shared);
  const float rstd = rsqrtf(squares / static_cast<float>(cols) + eps);
  if (threadIdx.x == 0) {
    if constexpr (kCentred) mean_out[row] = mean;
    rstd_out[row] = rstd;
  }
  unsigned most = 0;
  each_pack<kL, kPacks, kThreads>(cols, [&](int p, int col) {
    Packed<T, kL> g, b;
    g.load(gain + col);
    if constexpr (kCentred) b.load(bias + col);
    Lanes<T, kL> out;
#pragma unroll
    for (int i = 0; i < kL; ++i) {
      out.v[i] = (v[p][i] - mean) * rstd * g[i];
      if constexpr (kCentred) out.v[i] += b[i];
    }
    out.store(y + at(y_ld) + col);
    if (amax != nullptr) most = out.amax(most);
  });
  if (amax != nullptr) block_amax<T>(most, magnitudes, amax);
}

// A thread's part of a row of x and dy, as stored in memory, with the row's mean (if centred) and rstd.
template <class T, int kL, int kPacks>
struct RowParts {
  Packed<T, kL> x[kPacks], dy[kPacks];
  float mean, rstd;
};

// With h = (x - mean) rstd and e = dy gain: dx = rstd (e - mean(e) - h mean(e h)), RMSNorm without the middle term.
template <class T, int kL, int kPacks, bool kCentred>
__global__ void __launch_bounds__(most_norm_threads(true, kL, kPacks))
    norm_bwd(T* dx, std::int64_t dx_ld, float* partials, const T* dy, std::int64_t dy_ld, const T* x, std::int64_t x_ld,
             const float* mean_in, const float* rstd_in, const T* gain, std::int64_t rows, int cols, bool accumulate,
             int heads, float* amax) {
  __shared__ float shared[2 * kWarp];
  __shared__ unsigned magnitudes[kWarp];
  // The amax of what each thread has stored: what is read needs the registers.
  __shared__ unsigned most[most_norm_threads(true, kL, kPacks)];
  if (amax != nullptr) most[threadIdx.x] = 0;
  if constexpr (kCentred) heads = 1;  // known to the compiler, it saves registers
  float dgain[kPacks][kL] = {}, dbias[kPacks][kL] = {};
  // Everything that a row needs is read before anything is used: otherwise a multiprocessor has too few bytes in
  // flight. Rows of up to two packs a thread are prefetched while the previous row is processed; for more there are no
  // registers.
  constexpr bool kAhead = kPacks <= 2;
  RowParts<T, kL, kPacks> at, next;
  Packed<T, kL> gains[kPacks];
  each_pack<kL, kPacks>(cols, [&](int p, int col) { gains[p].load(gain + col); });
  const auto read = [&](RowParts<T, kL, kPacks>& of, std::int64_t row) {
    if (row >= rows) return;
    of.mean = kCentred ? mean_in[row] : 0;
    of.rstd = rstd_in[row];
    each_pack<kL, kPacks>(cols, [&](int p, int col) {
      of.x[p].load(x + start_of(row, heads, x_ld, cols) + col);
      of.dy[p].load(dy + start_of(row, heads, dy_ld, cols) + col);
    });
  };
  if constexpr (kAhead) read(next, blockIdx.x);
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    if constexpr (kAhead) {
      at = next;
      read(next, row + gridDim.x);
    } else {
      read(at, row);
    }
    const float mean = at.mean, rstd = at.rstd;
    Packed<T, kL> old[kPacks];
    T* const to = dx + start_of(row, heads, dx_ld, cols);
    if (accumulate) each_pack<kL, kPacks>(cols, [&](int p, int col) { old[p].load(to + col); });
    float sums[2] = {0, 0};  // of e, of e h
    each_pack<kL, kPacks>(cols, [&](int p, int) {
#pragma unroll
      for (int i = 0; i < kL; ++i) {
        const float h = (at.x[p][i] - mean) * rstd, e = at.dy[p][i] * gains[p][i];
        dgain[p][i] += at.dy[p][i] * h;
        if constexpr (kCentred) dbias[p][i] += at.dy[p][i];
        sums[0] += e;
        sums[1] += e * h;
      }
    });
    block_sum(sums, shared);
    const float mean_e = kCentred ? sums[0] / static_cast<float>(cols) : 0;
    const float mean_eh = sums[1] / static_cast<float>(cols);
    each_pack<kL, kPacks>(cols, [&](int p, int col) {
      Lanes<T, kL> out;
#pragma unroll
      for (int i = 0; i < kL; ++i) {
        const float h = (at.x[p][i] - mean) * rstd, e = at.dy[p][i] * gains[p][i];
        out.v[i] = (accumulate ? old[p][i] : 0) + rstd * (e - mean_e - h * mean_eh);
      }
      out.store(to + col);
      if (amax != nullptr) most[threadIdx.x] = out.amax(most[threadIdx.x]);
    });
  }
  if (amax != nullptr) block_amax<T>(most[threadIdx.x], magnitudes, amax);
  float* mine = partials + static_cast<std::int64_t>(blockIdx.x) * (kCentred ? 2 : 1) * cols;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int col = (p * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kL;
    if (col >= cols) continue;
    store_floats(mine + col, dgain[p]);
    if constexpr (kCentred) store_floats(mine + cols + col, dbias[p]);
  }
}

// Calls f.template operator()<kL, kPacks>(threads) with the values that fit the row.
template <class T, class F>
void by_row(bool backward, bool aligned, std::int64_t cols, F&& f) {
  constexpr int kL = kLanes<T, true>;
  const auto [packs, threads] = share_of_row(backward, cols, aligned ? kL : 1);
  switch (packs) {
    case 1: return f.template operator()<kL, 1>(threads);
    case 2: return f.template operator()<kL, 2>(threads);
    case 4: return f.template operator()<kL, 4>(threads);
    case kMostPacks: return f.template operator()<kL, kMostPacks>(threads);
    default: return f.template operator()<1, kPacksUnaligned>(threads);
  }
}

template <bool kCentred>
void forward(Stream stream, Matrix y, float* mean, float* rstd, Matrix x, Matrix gain, Matrix bias, float eps,
             const Residual& residual, float* amax, int heads = 1) {
  const auto& [a, b, added_bias] = residual;
  const std::int64_t rows = x.rows * heads;
  if (amax != nullptr) clear_amax(stream, amax);
  by_type(x.type, [&]<class T>(T) {
    const bool aligned = is_aligned(x) && is_aligned(y) && is_aligned(gain) && is_aligned(bias) && is_aligned(a) &&
                         is_aligned(b) && is_aligned(added_bias);
    const Sum<T> sum{as<T>(a), as<T>(b), as<T>(added_bias), a.ld, b.ld};
    by_row<T>(false, aligned, gain.cols, [&]<int kL, int kPacks>(int threads) {
      const auto run = [&](auto* kernel, int each) {
        launch(kernel, static_cast<unsigned>((rows + each - 1) / each),
               dim3(static_cast<unsigned>(threads), static_cast<unsigned>(each)), stream, as<T>(y), y.ld, mean, rstd,
               as<T>(x), x.ld, as<T>(gain), as<T>(bias), rows, static_cast<int>(gain.cols), eps, sum, heads, amax);
      };
      if constexpr (kL > 1) {
        if (threads == kWarp) return run(norm_fwd<T, kL, kPacks, kCentred, kWarp>, kRowsOfBlock);
      }
      // Rows of less than four packs a thread are one warp's.
      if constexpr (kPacks >= 4) run(norm_fwd<T, kL, kPacks, kCentred, 0>, 1);
    });
  });
}

template <bool kCentred>
void backward(Stream stream, Matrix dx, Matrix dgain, Matrix dbias, Matrix dy, Matrix x, const float* mean,
              const float* rstd, Matrix gain, bool accumulate, void* scratch, float* amax, int heads = 1) {
  if (amax != nullptr) clear_amax(stream, amax);
  auto* partials = static_cast<float*>(scratch);
  const std::int64_t rows = x.rows * heads;
  const int blocks = static_cast<int>(std::min<std::int64_t>(rows, partials_of(gain.cols)));
  by_type(x.type, [&]<class T>(T) {
    const bool aligned = is_aligned(x) && is_aligned(dy) && is_aligned(dx) && is_aligned(gain);
    by_row<T>(true, aligned, gain.cols, [&]<int kL, int kPacks>(int threads) {
      launch(norm_bwd<T, kL, kPacks, kCentred>, static_cast<unsigned>(blocks), threads, stream, as<T>(dx), dx.ld,
             partials, as<T>(dy), dy.ld, as<T>(x), x.ld, mean, rstd, as<T>(gain), rows, static_cast<int>(gain.cols),
             accumulate, heads, amax);
    });
  });
  add_partials(stream, dgain, dbias, partials, blocks, true);
}

}  // namespace

void layernorm_fwd(Stream stream, Matrix y, float* mean, float* rstd, Matrix x, Matrix gain, Matrix bias, float eps,
                   const Residual& residual, float* amax) {
  forward<true>(stream, y, mean, rstd, x, gain, bias, eps, residual, amax);
}
void rmsnorm_fwd(Stream stream, Matrix y, float* rstd, Matrix x, Matrix gain, float eps, const Residual& residual,
                 int heads, float* amax) {
  forward<false>(stream, y, nullptr, rstd, x, gain, {}, eps, residual, amax, heads);
}
void layernorm_bwd(Stream stream, Matrix dx, Matrix dgain, Matrix dbias, Matrix dy, Matrix x, const float* mean,
                   const float* rstd, Matrix gain, bool accumulate, void* scratch, float* amax) {
  backward<true>(stream, dx, dgain, dbias, dy, x, mean, rstd, gain, accumulate, scratch, amax);
}
void rmsnorm_bwd(Stream stream, Matrix dx, Matrix dgain, Matrix dy, Matrix x, const float* rstd, Matrix gain,
                 bool accumulate, void* scratch, int heads, float* amax) {
  backward<false>(stream, dx, dgain, {}, dy, x, nullptr, rstd, gain, accumulate, scratch, amax, heads);
}

}  // namespace ms::kernels
