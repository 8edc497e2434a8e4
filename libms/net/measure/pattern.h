// What ranks send each other so that what arrives can be verified word by word. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ms::net {

// For sums: small whole numbers, exact in f32 in any order for up to 500,000 ranks.
void fill_summand(std::span<float> x, int rank);
// How many elements are not the sum of the summands of ranks 0 .. ranks-1.
std::size_t count_wrong_sums(std::span<const float> x, int ranks);

// For exchanges: a block from one rank to another in some round.
void fill_block(std::span<std::uint32_t> x, int from, int to, int round);
std::size_t count_wrong_words(std::span<const std::uint32_t> x, int from, int to, int round);

// Who exchanges with whom: `ranks` is even; in each of its ranks-1 rounds everybody has one partner, and after all of
// them everybody has met everybody.
int partner_of(int rank, int round, int ranks);

}  // namespace ms::net
