// Patterns in memory: what is written is read back.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace ms::diag {

inline constexpr std::size_t kMemoryPatterns = 6;

// Writes one of the patterns, 0 to kMemoryPatterns - 1; the last two are random and differ by the seed.
void fill_pattern(std::span<std::uint64_t> words, std::size_t number, std::uint64_t seed);

struct MemorySoak {
  std::int64_t passes = 0;  // of all patterns
  std::int64_t words = 0;   // that were read back
  std::int64_t num_wrong = 0;
  std::uint64_t flipped = 0;  // every bit that was wrong in any word
};

// One pass: writes and reads all of `words` with every pattern. `between` is called after writing and before reading: a
// test damages a word there. `seed` makes the random patterns differ.
MemorySoak soak_words(std::span<std::uint64_t> words, std::uint64_t seed,
                      const std::function<void(std::span<std::uint64_t>)>& between);

}  // namespace ms::diag
