// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
// 1, 2, 3", SC11). A number is a pure function of (seed, key, index), so what is drawn never depends on rank, order or
// layout. `key` says what the numbers are for; derive it from a name with rng_key().
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace ms {

using PhiloxBlock = std::array<std::uint32_t, 4>;

constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key = {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
  }
  return counter;
}

// Block number `block` (four numbers) of the sequence (seed, key).
constexpr PhiloxBlock random_block(std::uint64_t seed, std::uint64_t key, std::uint64_t block) {
  return philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                     static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

// 64 random bits: numbers 2i and 2i+1 of the sequence.
constexpr std::uint64_t random_u64(std::uint64_t seed, std::uint64_t key, std::uint64_t index) {
  const PhiloxBlock block = random_block(seed, key, index / 2);
  const std::size_t half = (index % 2) * 2;
  return (std::uint64_t{block[half + 1]} << 32) | block[half];
}

// Uniform in [0, 1) with 53 bits.
constexpr double uniform(std::uint64_t seed, std::uint64_t key, std::uint64_t index) {
  return static_cast<double>(random_u64(seed, key, index) >> 11) * 0x1.0p-53;
}

// Uniform integer in [0, n), n > 0, by multiplication (bias below 2^-32 for n < 2^32).
constexpr std::uint64_t uniform_below(std::uint64_t seed, std::uint64_t key, std::uint64_t index, std::uint64_t n) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(random_u64(seed, key, index)) * n) >> 64);
}

// Four standard normal numbers from one block (Box-Muller): indices 4*block .. 4*block+3.
inline std::array<float, 4> normal_block(std::uint64_t seed, std::uint64_t key, std::uint64_t block) {
  const PhiloxBlock bits = random_block(seed, key, block);
  std::array<float, 4> result;
  for (std::size_t pair = 0; pair < 2; ++pair) {
    // (0, 1]: the logarithm is finite.
    const float u1 = (static_cast<float>(bits[2 * pair] >> 8) + 1.0F) * 0x1.0p-24F;
    const float u2 = static_cast<float>(bits[2 * pair + 1] >> 8) * 0x1.0p-24F;
    const float radius = std::sqrt(-2.0F * std::log(u1));
    const float angle = 2.0F * std::numbers::pi_v<float> * u2;
    result[2 * pair] = radius * std::cos(angle);
    result[2 * pair + 1] = radius * std::sin(angle);
  }
  return result;
}
inline float normal(std::uint64_t seed, std::uint64_t key, std::uint64_t index) {
  return normal_block(seed, key, index / 4)[index % 4];
}

// FNV-1a of a name, mixed: the key for what the numbers are used for ("init layers.3.attn.q.weight").
constexpr std::uint64_t rng_key(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  hash ^= hash >> 33;
  hash *= 0xff51afd7ed558ccdU;
  return hash ^ (hash >> 33);
}

}  // namespace ms
