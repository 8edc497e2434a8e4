// The rounds of active checks (pace.h). perf.memory has its own (memory_size.h).
#pragma once

#include <algorithm>
#include <climits>

#include "diag/pace.h"

namespace ms::diag {

inline constexpr std::int64_t kKiB = 1 << 10, kMiB = 1 << 20;

// perf.a2a and perf.procs: bytes of the block that everybody has for everybody else.
inline constexpr int kMostRanks = 16;  // threads, or processes
inline constexpr Work kA2aWork{.first = 16 * kKiB, .least = kMiB, .most = 4 * kMiB, .seconds = 1, .tail = 2};
inline constexpr Work kProcsWork{.first = 4 * kKiB, .least = 256 * kKiB, .most = kMiB, .seconds = 1, .tail = 2};

// perf.reduce: bytes of the vector.
inline constexpr Work kReduceWork{.first = 64 * kKiB, .least = 4 * kMiB, .most = 16 * kMiB, .seconds = 3};

// perf.gemm: the side of the matrices, large enough that all cores have work.
inline Work gemm_work(std::size_t cores) {
  const std::int64_t side = cores <= 4 ? 1024 : cores <= 32 ? 2048 : 4096;
  return {.first = 128, .least = side / 4, .most = side, .power = 3, .seconds = 1.5, .rounds = 2};
}

// perf.bits and soak.cpu: GEMMs of one size. What is right is a matter of majority.
inline constexpr int kLeastBitsRounds = 8;
inline Work bits_work(double seconds) {
  return {.seconds = seconds, .rounds = kLeastBitsRounds, .most_rounds = INT_MAX};
}

// soak.memory: the bytes of each core, which a round fills with every pattern and reads back. Without `all`, fewer will
// do.
inline Work soak_memory_work(std::int64_t bytes, double seconds, bool all) {
  constexpr std::int64_t kFirst = 256 * kKiB, kLeast = kMiB;
  return {.first = std::min(kFirst, bytes),
          .least = all ? bytes : std::min(kLeast, bytes),
          .most = bytes,
          .seconds = seconds,
          .most_rounds = INT_MAX};
}

}  // namespace ms::diag
