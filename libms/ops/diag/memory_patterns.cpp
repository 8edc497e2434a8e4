#include "diag/memory_patterns.h"

namespace ms::diag {
namespace {

// Hashes a place (the finalizer of splitmix64).
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// Word i of a pattern.
std::uint64_t pattern(std::size_t number, std::uint64_t i, std::uint64_t seed) {
  switch (number) {
    case 0: return std::uint64_t{1} << (i % 64);
    case 1: return ~(std::uint64_t{1} << (i % 64));
    case 2: return i;
    case 3: return ~i;
    case 4: return mixed(i ^ seed);
    default: return ~mixed(i ^ seed);
  }
}

}  // namespace

void fill_pattern(std::span<std::uint64_t> words, std::size_t number, std::uint64_t seed) {
  for (std::uint64_t i = 0; i < words.size(); ++i) words[i] = pattern(number, i, seed);
}

MemorySoak soak_words(std::span<std::uint64_t> words, std::uint64_t seed,
                      const std::function<void(std::span<std::uint64_t>)>& between) {
  MemorySoak soak{.passes = 1};
  const std::uint64_t pass_seed = mixed(seed);
  for (std::size_t number = 0; number < kMemoryPatterns; ++number) {
    fill_pattern(words, number, pass_seed);
    between(words);
    for (std::uint64_t i = 0; i < words.size(); ++i) {
      // Volatile: what was written must come from memory again.
      const std::uint64_t wrong = *const_cast<volatile std::uint64_t*>(&words[i]) ^ pattern(number, i, pass_seed);
      if (wrong == 0) continue;
      ++soak.num_wrong;
      soak.flipped |= wrong;
    }
    soak.words += static_cast<std::int64_t>(words.size());
  }
  return soak;
}

}  // namespace ms::diag
