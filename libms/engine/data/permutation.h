// A pseudo-random permutation of 0 .. n-1 that is computed, not stored: a Feistel network keyed by Philox over the
// smallest power of two that holds n, walked along its cycle until the value is below n. Any element costs O(1), so
// resuming in the middle of a shuffled epoch costs nothing and no index file is built. Pure.
#pragma once

#include <bit>
#include <cstdint>

#include "base/error.h"
#include "base/rng.h"

namespace ms::data {

class Permutation {
 public:
  // Permutation number `number` (an epoch) of the family (seed, key), of n >= 1 elements.
  Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t key, std::uint64_t number)
      : n_(n),
        // The key of Philox identifies the permutation; its counter holds (round, half).
        round_key_(random_u64(seed, key, number)),
        low_bits_(static_cast<int>(std::bit_width(n - 1)) / 2),
        high_bits_(static_cast<int>(std::bit_width(n - 1)) - low_bits_) {
    MS_ASSERT(n >= 1 && n <= kMaxSize, "a permutation of {} elements", n);
  }

  // The image of i < n; distinct for distinct i.
  std::uint64_t operator()(std::uint64_t i) const {
    MS_ASSERT(i < n_, "element {} of a permutation of {}", i, n_);
    // The power of two is below 2n, so fewer than two turns are expected, and the walk ends because i itself is below
    // n.
    do { i = encrypt(i); } while (i >= n_);
    return i;
  }

 private:
  // Each half must fit the 32 bits that one Philox block gives.
  static constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 62;
  static constexpr std::uint32_t kRounds = 8;

  // The halves change in turn instead of changing places, so they need not be equally long.
  std::uint64_t encrypt(std::uint64_t value) const {
    std::uint64_t low = value & mask(low_bits_);
    std::uint64_t high = value >> low_bits_;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      if (round % 2 == 0) {
        high ^= mix(round, low) & mask(high_bits_);
      } else {
        low ^= mix(round, high) & mask(low_bits_);
      }
    }
    return high << low_bits_ | low;
  }
  std::uint64_t mix(std::uint32_t round, std::uint64_t half) const {
    return philox4x32({static_cast<std::uint32_t>(half), round, 0, 0},
                      {static_cast<std::uint32_t>(round_key_), static_cast<std::uint32_t>(round_key_ >> 32)})[0];
  }
  static constexpr std::uint64_t mask(int bits) { return (std::uint64_t{1} << bits) - 1; }

  std::uint64_t n_;
  std::uint64_t round_key_;
  int low_bits_;
  int high_bits_;
};

}  // namespace ms::data
