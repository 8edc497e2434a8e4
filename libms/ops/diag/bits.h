// Silent corruption: runs the same GEMM on every core, or GPU, repeatedly and compares the results bit for bit. The
// hash is passed in so that a test can make one core compute something else.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/finding.h"

namespace ms::diag {

inline constexpr std::int64_t kBitsSide = 384;  // of the matrices: one GEMM takes a millisecond or two

// The hash of a result, which `unit` ("core 3") computed.
using HashFunction = std::function<std::uint64_t(const std::string& unit, std::span<const std::byte> result)>;

// Counts how often one core or GPU computed which bits, for one data type.
class UnitBits {
 public:
  UnitBits(std::string of_unit, std::string of_type) : unit(std::move(of_unit)), type(std::move(of_type)) {}
  void count(std::uint64_t hash);

  std::string unit;                            // "core 3"
  std::string type;                            // "fp32"; only units of one type are compared
  std::map<std::uint64_t, std::size_t> gemms;  // by hash, at most as many as fit: a core may never give the same twice
};
std::size_t num_gemms(const std::vector<UnitBits>& units);

// Runs the GEMMs on all cores at once, each for `seconds` and at least a minimum of rounds, but none for which too
// little is left (see Pace::ended()); the types alternate.
std::vector<UnitBits> compute_bits(
    const std::vector<int>& cpus, double seconds, const HashFunction& hash, std::int64_t side = kBitsSide,
    const std::function<double()>& left_s = [] { return std::numeric_limits<double>::infinity(); });
HashFunction plain_hash();

// Takes the most frequent result of each type as correct, if it is the result of more than half of all GEMMs. Returns a
// finding, of severity `severity`, for each unit that ever computed another; one for all units of a type where no
// result has such a majority: then it is not known which of them is wrong.
std::vector<Finding> judge_bits(const std::vector<UnitBits>& units, Severity severity = Severity::critical);

// Throws NotMeasured if a unit computed too few GEMMs for their equality to tell something.
void require_enough(const std::vector<UnitBits>& units);

}  // namespace ms::diag
