// How the threads of a block share a row of a norm: each has `packs` packs of `lanes` adjacent elements. Pure, so that
// it is tested without a GPU.
#pragma once

#include <cstdint>

namespace ms::kernels {

constexpr std::int64_t kMostNormColumns = 32768;  // in registers, of any type, aligned or not
constexpr int kMostNormThreads = 1024, kMostPacks = 8, kPacksUnaligned = 32;
constexpr int kRowsOfBlock = 4;  // forward, if a row is one warp's

// Returns the most threads of a row that registers allow, forward and backward: the kernels' launch bounds. Forward, a
// thread holds a row's packs as they lie in memory, and so few registers that several blocks fit a multiprocessor.
// Backward, column sums of four packs and everything that is read at once fit 384 threads. Rows of one pack have at
// most 192 threads: see share_of_row(). Rows of eight packs are wider than those of models and may spill.
constexpr int most_norm_threads(bool backward, int lanes, int packs) {
  if (lanes == 1) return kMostNormThreads;
  if (!backward) return packs == 4 && lanes == 8 ? 576 : kMostNormThreads;
  if (packs == kMostPacks) return lanes == 8 ? 512 : kMostNormThreads;
  return packs == 1 ? 256 : 384;
}

// The launch bounds of the forward kernel whose rows have `threads` threads, or, if that is 0, a block each: the
// threads of a block, and how many blocks fit a multiprocessor.
constexpr int most_fwd_threads(int lanes, int packs, int threads) {
  return threads > 0 ? threads * kRowsOfBlock : most_norm_threads(false, lanes, packs);
}
constexpr int least_fwd_blocks(int lanes, int packs, int threads) {
  if (threads > 0) return packs == kMostPacks ? 7 : 8;
  return packs == 4 && lanes == 8 ? 2 : 1;
}

struct RowShare {
  int packs, threads;
};
constexpr RowShare share_of_row(bool backward, std::int64_t cols, int lanes) {
  constexpr std::int64_t kWhole = 32;  // a warp
  const auto threads = [&](int packs) {
    const std::int64_t each = std::int64_t{lanes} * packs;
    return static_cast<int>(((cols + each - 1) / each + kWhole - 1) / kWhole * kWhole);
  };
  if (lanes == 1) return {kPacksUnaligned, threads(kPacksUnaligned)};
  int packs = 1;
  if (!backward) {
    // One warp, if it can hold the row: it waits for no other. A wider row has blocks that are neither so small that
    // starting them takes the time, nor so large that few fit.
    while (packs < kMostPacks && threads(packs) > kWhole) packs *= 2;
    if (threads(packs) > kWhole) packs = threads(4) > most_norm_threads(backward, lanes, 4) ? kMostPacks : 4;
    return {packs, threads(packs)};
  }
  // As many packs as keep a block near 192 threads, up to two; more only if the block would otherwise be too large.
  while (packs < kMostPacks && threads(packs) > (packs < 2 ? 192 : most_norm_threads(backward, lanes, packs)))
    packs *= 2;
  return {packs, threads(packs)};
}

}  // namespace ms::kernels
