// Initial values: normal numbers, each a function of its position in the logical parameter.
#include <numbers>

#include "base/rng.h"
#include "vector.cuh"

namespace ms::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlock = 4;  // numbers drawn at once

// normal_block() of base/rng.h. Logarithm, sine and cosine use double precision: rounded to float, they rarely differ
// from a good library's floats, and then by one unit in the last place.
__device__ void draw(float (&numbers)[kBlock], std::uint64_t seed, std::uint64_t key, std::uint64_t block) {
  const PhiloxBlock bits = random_block(seed, key, block);
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const float u1 = (static_cast<float>(bits[2 * pair] >> 8) + 1.0F) * 0x1.0p-24F;  // above 0
    const float u2 = static_cast<float>(bits[2 * pair + 1] >> 8) * 0x1.0p-24F;
    const float radius = sqrtf(-2.0F * static_cast<float>(log(static_cast<double>(u1))));
    const auto angle = static_cast<double>(2.0F * std::numbers::pi_v<float> * u2);
    numbers[2 * pair] = radius * static_cast<float>(cos(angle));
    numbers[2 * pair + 1] = radius * static_cast<float>(sin(angle));
  }
}

// A row's elements are the numbers first + row * global_cols and following. A thread draws one of their blocks, of
// which there are at most `blocks`.
template <class T>
__global__ void __launch_bounds__(kThreads)
    normal_kernel(T* x, std::int64_t rows, std::int64_t cols, std::int64_t ld, std::int64_t valid, std::uint64_t seed,
                  std::uint64_t key, std::int64_t first, std::int64_t global_cols, float std, std::int64_t blocks) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < rows * blocks; i += step) {
    const std::int64_t row = i / blocks, begin = first + row * global_cols, block = begin / kBlock + i % blocks;
    float numbers[kBlock] = {};
    if (row < valid) draw(numbers, seed, key, static_cast<std::uint64_t>(block));
#pragma unroll
    for (int j = 0; j < kBlock; ++j) {
      const std::int64_t col = block * kBlock + j - begin;
      if (col >= 0 && col < cols) x[row * ld + col] = from_float<T>(std * numbers[j]);
    }
  }
}

}  // namespace

void init_normal(Stream stream, Matrix x, std::int64_t valid, std::uint64_t seed, std::uint64_t key, std::int64_t first,
                 std::int64_t global_cols, float std) {
  const std::int64_t blocks = x.cols / kBlock + 2;
  by_type(x.type, [&]<class T>(T) {
    launch(normal_kernel<T>, blocks_for(x.rows * blocks, kThreads), kThreads, stream, as<T>(x), x.rows, x.cols, x.ld,
           valid, seed, key, first, global_cols, std, blocks);
  });
}

}  // namespace ms::kernels
