// LayerNorm and RMSNorm. A block has a row in its registers, so that memory is read once. Backward, blocks walk over
// rows and keep the column sums of what they saw; a second launch adds those up, in order of block.
#include <algorithm>

#include "column_sums.cuh"
#include "vector.cuh"

namespace ms::kernels {
namespace {

constexpr int kMostThreads = 1024;

// How many threads have a row, each kPacks times kL elements of it.
int threads_for(std::int64_t cols, int lanes, int packs) {
  const std::int64_t each = std::int64_t{lanes} * packs;
  return static_cast<int>(((cols + each - 1) / each + kWarp - 1) / kWarp * kWarp);
}
// Enough packs that a block is not much larger than 192 threads, or `most` of them, then more where it would be larger
// than `threads`.
int packs_for(std::int64_t cols, int lanes, int most, int threads) {
  int packs = 1;
  while (packs < 8 && cols > (packs < most ? 192 : threads) * std::int64_t{lanes} * packs) packs *= 2;
  return packs;
}

// Where there is no a, x is there.
template <class T>
struct Sum {
  const T *a, *b, *bias;
  std::int64_t a_ld, b_ld;
};

// Calls f(p, column) for what this thread has of a row.
template <int kL, int kPacks, class F>
__device__ void each_pack(int cols, F&& f) {
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int col = (p * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kL;
    if (col < cols) f(p, col);
  }
}

// What this thread has of a row of x, as x has it; x is made first, where there is what to add. All is read before
// anything is written: no read waits for a write.
template <class T, int kL, int kPacks>
__device__ void load_row(Lanes<T, kL> (&v)[kPacks], T* x, const Sum<T>& sum, std::int64_t row, int cols) {
  const T* from = sum.a != nullptr ? sum.a + row * sum.a_ld : x;
  each_pack<kL, kPacks>(cols, [&](int p, int col) { v[p].load(from + col); });
  if (sum.a == nullptr) return;
  Packed<T, kL> b[kPacks];
  each_pack<kL, kPacks>(cols, [&](int p, int col) { b[p].load(sum.b + row * sum.b_ld + col); });
  each_pack<kL, kPacks>(cols, [&](int p, int col) {
    Packed<T, kL> bias;
    if (sum.bias != nullptr) bias.load(sum.bias + col);
#pragma unroll
    for (int i = 0; i < kL; ++i) {
      v[p].v[i] += b[p][i];
      if (sum.bias != nullptr) v[p].v[i] += bias[i];
      v[p].v[i] = to_float(from_float<T>(v[p].v[i]));
    }
  });
  each_pack<kL, kPacks>(cols, [&](int p, int col) { v[p].store(x + col); });
}

// What registers allow: four pieces of a row and of gains.
constexpr int most_threads_fwd(int lanes, int packs) { return lanes > 1 && packs == 4 ? 640 : kMostThreads; }

template <class T, int kL, int kPacks, bool kCentred>
__global__ void __launch_bounds__(most_threads_fwd(kL, kPacks))
    norm_fwd(T* y, std::int64_t y_ld, float* mean_out, float* rstd_out, T* x, std::int64_t x_ld, const T* gain,
             const T* bias, int cols, float eps, Sum<T> addends) {
  __shared__ float shared[kWarp];
  const std::int64_t row = blockIdx.x;
  Lanes<T, kL> v[kPacks];
  load_row(v, x + row * x_ld, addends, row, cols);
  float sum[1] = {0};
  each_pack<kL, kPacks>(cols, [&](int p, int) {
#pragma unroll
    for (int i = 0; i < kL; ++i) sum[0] += v[p].v[i];
  });
  float mean = 0;
  if constexpr (kCentred) {
    block_sum(sum, shared);
    mean = sum[0] / static_cast<float>(cols);
  }
  float squares[1] = {0};
  each_pack<kL, kPacks>(cols, [&](int p, int) {
#pragma unroll
    for (int i = 0; i < kL; ++i) squares[0] += (v[p].v[i] - mean) * (v[p].v[i] - mean);
  });
  Packed<T, kL> gains[kPacks];  // read while others come to the meeting
  each_pack<kL, kPacks>(cols, [&](int p, int col) { gains[p].load(gain + col); });
  block_sum(squares, shared);
  const float rstd = rsqrtf(squares[0] / static_cast<float>(cols) + eps);
  if (threadIdx.x == 0) {
    if constexpr (kCentred) mean_out[row] = mean;
    rstd_out[row] = rstd;
  }
  each_pack<kL, kPacks>(cols, [&](int p, int col) {
    Packed<T, kL> b;
    if constexpr (kCentred) b.load(bias + col);
#pragma unroll
    for (int i = 0; i < kL; ++i) {
      v[p].v[i] = (v[p].v[i] - mean) * rstd * gains[p][i];
      if constexpr (kCentred) v[p].v[i] += b[i];
    }
    v[p].store(y + row * y_ld + col);
  });
}

// What registers allow: column sums of four pieces, and all that is read at once, are as many as 384 threads can have.
constexpr int most_threads_bwd(int lanes, int packs) {
  if (lanes == 1) return kMostThreads;
  return packs == 1 ? 256 : packs == 8 ? 512 : 384;  // of one piece there are 192 at the most: packs_for()
}

// What a thread has of a row of x and of dy, as it lies in memory, and the row's mean, where it is centred, and scale.
template <class T, int kL, int kPacks>
struct Pieces {
  Packed<T, kL> x[kPacks], dy[kPacks];
  float mean, rstd;
};

// With h = (x - mean) rstd and e = dy gain: dx = rstd (e - mean(e) - h mean(e h)), RMSNorm without the middle term.
template <class T, int kL, int kPacks, bool kCentred>
__global__ void __launch_bounds__(most_threads_bwd(kL, kPacks))
    norm_bwd(T* dx, std::int64_t dx_ld, float* partials, const T* dy, std::int64_t dy_ld, const T* x, std::int64_t x_ld,
             const float* mean_in, const float* rstd_in, const T* gain, std::int64_t rows, int cols, bool accumulate) {
  __shared__ float shared[2 * kWarp];
  float dgain[kPacks][kL] = {}, dbias[kPacks][kL] = {};
  // All that a row takes is read before anything is used: counting bytes under way, a multiprocessor has too few of
  // them. Rows of up to two pieces a thread are read while the one before is worked on; for more there are no
  // registers.
  constexpr bool kAhead = kPacks <= 2;
  Pieces<T, kL, kPacks> at, next;
  Packed<T, kL> gains[kPacks];
  each_pack<kL, kPacks>(cols, [&](int p, int col) { gains[p].load(gain + col); });
  const auto read = [&](Pieces<T, kL, kPacks>& of, std::int64_t row) {
    if (row >= rows) return;
    of.mean = kCentred ? mean_in[row] : 0;
    of.rstd = rstd_in[row];
    each_pack<kL, kPacks>(cols, [&](int p, int col) {
      of.x[p].load(x + row * x_ld + col);
      of.dy[p].load(dy + row * dy_ld + col);
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
    if (accumulate) each_pack<kL, kPacks>(cols, [&](int p, int col) { old[p].load(dx + row * dx_ld + col); });
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
      out.store(dx + row * dx_ld + col);
    });
  }
  float* mine = partials + static_cast<std::int64_t>(blockIdx.x) * (kCentred ? 2 : 1) * cols;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int col = (p * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kL;
    if (col >= cols) continue;
    store_floats(mine + col, dgain[p]);
    if constexpr (kCentred) store_floats(mine + cols + col, dbias[p]);
  }
}

// Calls f.template operator()<kL, kPacks>(threads) with what fits the row.
template <class T, class F>
void by_row(bool aligned, std::int64_t cols, int most_packs, int most_threads, F&& f) {
  if (!aligned) return f.template operator()<1, 32>(threads_for(cols, 1, 32));
  constexpr int kL = kLanes<T, true>;
  switch (packs_for(cols, kL, most_packs, most_threads)) {
    case 1:
      return f.template operator()<kL, 1>(threads_for(cols, kL, 1));
    case 2:
      return f.template operator()<kL, 2>(threads_for(cols, kL, 2));
    case 4:
      return f.template operator()<kL, 4>(threads_for(cols, kL, 4));
    default:
      return f.template operator()<kL, 8>(threads_for(cols, kL, 8));
  }
}

template <bool kCentred>
void forward(Stream stream, Matrix y, float* mean, float* rstd, Matrix x, Matrix gain, Matrix bias, float eps,
             const Addends& addends) {
  const auto& [a, b, added_bias] = addends;
  by_type(x.type, [&]<class T>(T) {
    const bool aligned = is_aligned(x) && is_aligned(y) && is_aligned(gain) && is_aligned(bias) && is_aligned(a) &&
                         is_aligned(b) && is_aligned(added_bias);
    const Sum<T> sum{as<T>(a), as<T>(b), as<T>(added_bias), a.ld, b.ld};
    by_row<T>(aligned, x.cols, 4, most_threads_fwd(kLanes<T, true>, 4), [&]<int kL, int kPacks>(int threads) {
      launch(norm_fwd<T, kL, kPacks, kCentred>, static_cast<unsigned>(x.rows), threads, stream, as<T>(y), y.ld, mean,
             rstd, as<T>(x), x.ld, as<T>(gain), as<T>(bias), static_cast<int>(x.cols), eps, sum);
    });
  });
}

template <bool kCentred>
void backward(Stream stream, Matrix dx, float* dgain, float* dbias, Matrix dy, Matrix x, const float* mean,
              const float* rstd, Matrix gain, bool accumulate, void* scratch) {
  auto* partials = static_cast<float*>(scratch);
  const int blocks = static_cast<int>(std::min<std::int64_t>(x.rows, partials_of(x.cols)));
  by_type(x.type, [&]<class T>(T) {
    const bool aligned = is_aligned(x) && is_aligned(dy) && is_aligned(dx) && is_aligned(gain);
    by_row<T>(aligned, x.cols, 2, most_threads_bwd(kLanes<T, true>, 2), [&]<int kL, int kPacks>(int threads) {
      launch(norm_bwd<T, kL, kPacks, kCentred>, static_cast<unsigned>(blocks), threads, stream, as<T>(dx), dx.ld,
             partials, as<T>(dy), dy.ld, as<T>(x), x.ld, mean, rstd, as<T>(gain), x.rows, static_cast<int>(x.cols),
             accumulate);
    });
  });
  add_partials(stream, dgain, dbias, partials, blocks, x.cols);
}

}  // namespace

void layernorm_fwd(Stream stream, Matrix y, float* mean, float* rstd, Matrix x, Matrix gain, Matrix bias, float eps,
                   const Addends& addends) {
  forward<true>(stream, y, mean, rstd, x, gain, bias, eps, addends);
}
void rmsnorm_fwd(Stream stream, Matrix y, float* rstd, Matrix x, Matrix gain, float eps, const Addends& addends) {
  forward<false>(stream, y, nullptr, rstd, x, gain, {}, eps, addends);
}
void layernorm_bwd(Stream stream, Matrix dx, float* dgain, float* dbias, Matrix dy, Matrix x, const float* mean,
                   const float* rstd, Matrix gain, bool accumulate, void* scratch) {
  backward<true>(stream, dx, dgain, dbias, dy, x, mean, rstd, gain, accumulate, scratch);
}
void rmsnorm_bwd(Stream stream, Matrix dx, float* dgain, Matrix dy, Matrix x, const float* rstd, Matrix gain,
                 bool accumulate, void* scratch) {
  backward<false>(stream, dx, dgain, nullptr, dy, x, nullptr, rstd, gain, accumulate, scratch);
}

}  // namespace ms::kernels
