// perf.bits: the same product on every core, again and again, compared bit for bit. The hash is passed in so that a
// test can make one core compute something else.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/finding.h"

namespace ms::diag {

inline constexpr std::int64_t kBitsSide = 384;  // of the matrices: one GEMM takes a millisecond or two

using HashFunction = std::function<std::uint64_t(int cpu, std::span<const std::byte> product)>;

// Of one core and one type of numbers: how often it computed which bits.
struct CoreBits {
  int cpu = 0;
  std::string type;                               // "fp32"
  std::map<std::uint64_t, std::size_t> products;  // by hash
};

// All cores at once, each for so many seconds and at least some rounds, types alternating.
std::vector<CoreBits> compute_bits(const std::vector<int>& cpus, double seconds, const HashFunction& hash);
HashFunction plain_hash();

// What most products of a type are is taken for right. A finding for each core that ever computed something else.
std::vector<Finding> judge_bits(const std::vector<CoreBits>& cores);

}  // namespace ms::diag
