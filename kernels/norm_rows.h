// How the threads of a block share a row of a norm: each has `packs` packs of `lanes` adjacent elements. Pure, so that
// it is tested without a GPU.
#pragma once

#include <cstdint>

namespace ms::kernels {

constexpr std::int64_t kMostNormColumns = 32768;  // in registers, of any type, aligned or not
constexpr int kMostNormThreads = 1024, kMostPacks = 8, kPacksUnaligned = 32;

// Returns the most threads that registers allow, forward and backward: the kernels' launch bounds. Forward, a thread
// holds four packs of a row and of gains; backward, column sums of four packs and everything that is read at once fit
// 384 threads. Rows of one pack have at most 192 threads: see share_of_row(). Rows of eight packs are wider than those
// of models and may spill.
constexpr int most_norm_threads(bool backward, int lanes, int packs) {
  if (lanes == 1) return kMostNormThreads;
  if (!backward) return packs == 4 ? 640 : kMostNormThreads;
  if (packs == kMostPacks) return lanes == 8 ? 512 : kMostNormThreads;
  return packs == 1 ? 256 : 384;
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
  // As many packs as keep a block near 192 threads, up to `enough`; more only if the block would otherwise be too
  // large.
  const int enough = backward ? 2 : 4;
  int packs = 1;
  while (packs < kMostPacks && threads(packs) > (packs < enough ? 192 : most_norm_threads(backward, lanes, packs)))
    packs *= 2;
  return {packs, threads(packs)};
}

}  // namespace ms::kernels
