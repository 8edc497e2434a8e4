// The chain of a run's samples: a hash after each step of all that the steps so far were fed with, in order. Two runs
// with equal chains after a step were fed with the same samples in the same steps, none twice or left out in one of
// them alone. It does not depend on dp, and where it goes on from a checkpoint's it does not depend on that either.
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "data/sampler.h"

namespace ms::data {

// The chain before the first step.
inline constexpr std::string_view kChainStart = "0000000000000000";

// Returns XXH3-64 of the windows, each as two 64-bit little-endian words: the file, by its place in data.train, and its
// first token in there.
std::uint64_t digest_of(std::span<const Window> windows);

// Returns the chain after a step from that before it and the digest of the step's samples: XXH3-64 of both, written one
// after the other as 16 hexadecimal digits each; itself 16 of them.
std::string extend_chain(std::string_view chain, std::uint64_t digest);

}  // namespace ms::data
