// fp8 operands of matmuls: the amax of a tensor, then the tensor times a power of two in e4m3 or e5m2, as it lies in
// memory or transposed; or rounded to those numbers and stored as bf16, for GPUs and shapes without an fp8 GEMM.
#include <cuda_fp8.h>

#include <algorithm>

#include "amax.cuh"
#include "column_sums.cuh"

namespace ms::kernels {
namespace {

constexpr int kThreads = 256;

constexpr unsigned kInfinite = 0x7f800000U;

// Iterates over the vectors of a matrix, row by row, in strides of the grid, without a division per step.
struct Walk {
  std::int64_t row, col;  // in vectors
  std::int64_t across, rows_on, cols_on;

  __device__ explicit Walk(std::int64_t vectors_across) : across(vectors_across) {
    // 32 bits hold all of these; a 32-bit division takes a fraction of the time.
    const unsigned first = blockIdx.x * kThreads + threadIdx.x, step = gridDim.x * kThreads,
                   each = static_cast<unsigned>(across);
    row = first / each, col = first % each;
    rows_on = step / each, cols_on = step % each;
  }
  __device__ void next() {
    row += rows_on, col += cols_on;
    if (col >= across) col -= across, ++row;
  }
};

__global__ void clear_kernel(float* number) { *number = 0; }

constexpr int kAtOnce = 4;  // vectors that a thread loads together

template <int kL>
__global__ void __launch_bounds__(kThreads)
    amax_kernel(float* out, const __nv_bfloat16* x, std::int64_t rows, std::int64_t cols, std::int64_t ld) {
  __shared__ unsigned shared[kWarp];
  unsigned amax = 0;
  for (Walk at(cols / kL); at.row < rows;) {
    Packed<__nv_bfloat16, kL> vectors[kAtOnce] = {};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (at.row < rows) vectors[i].load(x + at.row * ld + at.col * kL);
      at.next();
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
      for (int j = 0; j < kL; ++j) amax = max(amax, magnitude(vectors[i][j]));
    }
  }
  block_amax<__nv_bfloat16>(amax, shared, out);
}

struct Scale {
  float forth, back;  // 2^k and 2^-k; `back` is NaN if the tensor is not finite
};
__device__ float power_of_two(int k) { return __uint_as_float(static_cast<unsigned>(k + 127) << 23); }
// fp8_shift() of tensor/fp8.h, on bits; a subnormal bf16 is normalized first.
__device__ Scale scale_of(float tensor_amax, bool is_e5m2) {
  constexpr int kLeast = -126, kMost = 110;
  const unsigned amax = magnitude(tensor_amax);
  if (amax == 0) return {1, 1};
  if (amax >= kInfinite) return {1, __uint_as_float(0x7fffffffU)};
  float value = __uint_as_float(amax);
  int more = 0;
  if (amax < 0x00800000U) value *= power_of_two(64), more = 64;
  const unsigned bits = magnitude(value);
  const int exponent = static_cast<int>(bits >> 23) - 127 - more;  // value is 1.m 2^exponent
  const bool above = (bits & 0x007fffffU) > 0x00600000U;           // 448 and 57344 are 1.75 times a power of two
  const int shift = (is_e5m2 ? 15 : 8) - exponent - (above ? 1 : 0);
  const int k = min(max(shift, kLeast), kMost);
  return {power_of_two(k), power_of_two(-k)};
}

template <bool kE5m2>
__device__ unsigned char to_fp8(float x) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, kE5m2 ? __NV_E5M2 : __NV_E4M3);
}

constexpr int kPerVector = 16;  // fp8 numbers in 16 bytes

template <bool kE5m2>
__global__ void __launch_bounds__(kThreads)
    quantize_rows(unsigned char* to, float* back, const __nv_bfloat16* x, std::int64_t rows, std::int64_t cols,
                  std::int64_t ld, const float* amax) {
  const Scale scale = scale_of(*amax, kE5m2);
  if (blockIdx.x == 0 && threadIdx.x == 0) *back = scale.back;
  for (Walk at(cols / kPerVector); at.row < rows; at.next()) {
    const std::int64_t col = at.col * kPerVector;
    uint4 bits;
    auto* numbers = reinterpret_cast<unsigned char*>(&bits);
#pragma unroll
    for (int part = 0; part < kPerVector; part += 8) {
      Lanes<__nv_bfloat16, 8> v;
      v.load(x + at.row * ld + col + part);
#pragma unroll
      for (int j = 0; j < 8; ++j) numbers[part + j] = to_fp8<kE5m2>(v.v[j] * scale.forth);
    }
    __stwb(reinterpret_cast<uint4*>(to + at.row * cols + col), bits);
  }
}

// Tiles of kTile x kTile, read along the rows and written along the columns. The pitch of `shared` lets at most two of
// the bytes that a warp writes at once share a bank.
constexpr int kTile = static_cast<int>(kFp8Tile), kPitch = kTile + 4;

// Adds, of a thread's first kCount sums, one half of this thread's to that of the thread whose index differs by `bit`,
// which does so with the other half. The thread whose bit is set keeps the second half.
template <int kCount>
__device__ void share_sums(float* sums, unsigned bit) {
  const bool second = (threadIdx.x & bit) != 0;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const float keeps = second ? sums[i + kCount / 2] : sums[i], gives = second ? sums[i] : sums[i + kCount / 2];
    sums[i] = keeps + __shfl_xor_sync(~0U, gives, static_cast<int>(bit));
  }
}

// With kBoth, the tile goes to `as_is` too, along the rows, and, unless `partials` is null, the sums of its columns to
// row blockIdx.y of partials: of each thread's rows, of the rows of a warp's threads, and of warps, in order.
template <bool kE5m2, bool kBoth>
__global__ void __launch_bounds__(kThreads)
    quantize_columns(unsigned char* to, unsigned char* as_is, float* back, const __nv_bfloat16* x, std::int64_t rows,
                     std::int64_t cols, std::int64_t ld, const float* amax, float* partials) {
  __shared__ unsigned words[kTile * kPitch / 4];
  __shared__ float of_warps[kThreads / kWarp][kTile];
  float sums[8] = {};
  auto* tile = reinterpret_cast<unsigned char*>(words);  // [column][row]
  const Scale scale = scale_of(*amax, kE5m2);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *back = scale.back;
  const std::int64_t row0 = std::int64_t{blockIdx.y} * kTile, col0 = std::int64_t{blockIdx.x} * kTile;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile / 8; i += kThreads) {
    const int row = i / (kTile / 8), col = i % (kTile / 8) * 8;
    if (row0 + row >= rows || col0 + col >= cols) continue;  // cols is a multiple of 8
    Lanes<__nv_bfloat16, 8> v;
    v.load(x + (row0 + row) * ld + col0 + col);
    uint2 bits;
    auto* numbers = reinterpret_cast<unsigned char*>(&bits);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      numbers[j] = to_fp8<kE5m2>(v.v[j] * scale.forth);
      tile[(col + j) * kPitch + row] = numbers[j];
      if constexpr (kBoth) sums[j] += v.v[j];
    }
    if constexpr (kBoth) __stwb(reinterpret_cast<uint2*>(as_is + (row0 + row) * cols + col0 + col), bits);
  }
  if (kBoth && partials != nullptr) {
    // A warp's threads have eight columns each, of four rows; two columns remain for each.
    share_sums<8>(sums, 8), share_sums<4>(sums, 16);
    const unsigned lane = threadIdx.x % kWarp, col = lane % 8 * 8 + (lane & 8) / 2 + (lane & 16) / 8;
    float* mine = &of_warps[threadIdx.x / kWarp][col];
    mine[0] = sums[0], mine[1] = sums[1];
  }
  __syncthreads();
  if (kBoth && partials != nullptr && threadIdx.x < kTile && col0 + threadIdx.x < cols) {
    float sum = 0;
#pragma unroll
    for (const auto& of_warp : of_warps) sum += of_warp[threadIdx.x];
    partials[blockIdx.y * cols + col0 + threadIdx.x] = sum;
  }
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile / kPerVector; i += kThreads) {
    const int col = i / (kTile / kPerVector), row = i % (kTile / kPerVector) * kPerVector;
    if (row0 + row >= rows || col0 + col >= cols) continue;  // rows is a multiple of 16
    const unsigned* from = words + (col * kPitch + row) / 4;
    __stwb(reinterpret_cast<uint4*>(to + (col0 + col) * rows + row0 + row),
           make_uint4(from[0], from[1], from[2], from[3]));
  }
}

dim3 tiles_of(Matrix x) {
  return {static_cast<unsigned>((x.cols + kTile - 1) / kTile), static_cast<unsigned>((x.rows + kTile - 1) / kTile)};
}

// Returns an fp8 number in float; bf16 represents all of them.
template <bool kE5m2>
__device__ float from_fp8(unsigned char x) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(x, kE5m2 ? __NV_E5M2 : __NV_E4M3)));
}
template <bool kE5m2>
__global__ void __launch_bounds__(kThreads) round_kernel(__nv_bfloat16* to, const __nv_bfloat16* x, std::int64_t rows,
                                                         std::int64_t cols, std::int64_t ld, const float* amax) {
  const Scale scale = scale_of(*amax, kE5m2);
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < rows * cols; i += step) {
    const float scaled = to_float(x[i / cols * ld + i % cols]) * scale.forth;
    to[i] = from_float<__nv_bfloat16>(from_fp8<kE5m2>(to_fp8<kE5m2>(scaled)) * scale.back);
  }
}

}  // namespace

void clear_amax(Stream stream, float* amax) { launch(clear_kernel, 1, 1, stream, amax); }

void compute_amax(Stream stream, float* amax, Matrix x) {
  const auto* from = as<__nv_bfloat16>(x);
  clear_amax(stream, amax);
  const auto start = [&](auto* kernel, std::int64_t vectors) {
    if (vectors == 0) return;
    // Enough blocks to fill any GPU, and few that contend for one word.
    constexpr int kTurns = 2;
    constexpr unsigned kMostBlocks = 2048;
    launch(kernel, std::min(blocks_for(vectors, kThreads * kAtOnce * kTurns), kMostBlocks), kThreads, stream, amax,
           from, x.rows, x.cols, x.ld);
  };
  if (is_aligned(x)) {
    start(amax_kernel<8>, x.rows * x.cols / 8);
  } else {
    start(amax_kernel<1>, x.rows * x.cols);
  }
}

void fp8_quantize(Stream stream, void* to, float* back, Matrix x, const float* amax, bool is_e5m2, bool transposed) {
  auto* numbers = static_cast<unsigned char*>(to);
  const auto* from = as<__nv_bfloat16>(x);
  if (transposed) {
    launch(is_e5m2 ? quantize_columns<true, false> : quantize_columns<false, false>, tiles_of(x), kThreads, stream,
           numbers, nullptr, back, from, x.rows, x.cols, x.ld, amax, nullptr);
  } else {
    launch(is_e5m2 ? quantize_rows<true> : quantize_rows<false>,
           blocks_for(x.rows * x.cols / kPerVector, kThreads * kAtOnce), kThreads, stream, numbers, back, from, x.rows,
           x.cols, x.ld, amax);
  }
}

void fp8_quantize_both(Stream stream, void* rows, void* columns, float* back, Matrix x, const float* amax, bool is_e5m2,
                       const Fp8Sums& sums) {
  const dim3 tiles = tiles_of(x);
  auto* partials = sums.out.data != nullptr ? static_cast<float*>(sums.scratch) : nullptr;
  launch(is_e5m2 ? quantize_columns<true, true> : quantize_columns<false, true>, tiles, kThreads, stream,
         static_cast<unsigned char*>(columns), static_cast<unsigned char*>(rows), back, as<__nv_bfloat16>(x), x.rows,
         x.cols, x.ld, amax, partials);
  if (partials != nullptr) add_partials(stream, sums.out, {}, partials, static_cast<int>(tiles.y), sums.accumulate);
}

void fp8_round(Stream stream, void* to, Matrix x, const float* amax, bool is_e5m2) {
  launch(is_e5m2 ? round_kernel<true> : round_kernel<false>, blocks_for(x.rows * x.cols, kThreads), kThreads, stream,
         static_cast<__nv_bfloat16*>(to), as<__nv_bfloat16>(x), x.rows, x.cols, x.ld, amax);
}

}  // namespace ms::kernels
