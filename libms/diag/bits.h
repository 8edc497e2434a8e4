// perf.bits: runs the same GEMM on every core repeatedly and compares the results bit for bit. The hash is passed in so
// that a test can make one core compute something else.
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

using HashFunction = std::function<std::uint64_t(int cpu, std::span<const std::byte> result)>;

// Counts how often one core computed which bits, for one data type.
struct CoreBits {
  int cpu = 0;
  std::string type;                            // "fp32"
  std::map<std::uint64_t, std::size_t> gemms;  // by hash
};

// Runs the GEMMs on all cores at once, each for `seconds` and at least a minimum of rounds; the types alternate.
std::vector<CoreBits> compute_bits(const std::vector<int>& cpus, double seconds, const HashFunction& hash);
HashFunction plain_hash();

// Takes the most frequent result of each type as correct. Returns a finding for each core that ever computed another.
std::vector<Finding> judge_bits(const std::vector<CoreBits>& cores);

}  // namespace ms::diag
