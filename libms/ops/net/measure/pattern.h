// Test patterns that ranks send each other, so that received data can be verified word by word. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ms::net {

// Fills a summand of a reduction with small integers; sums are exact in f32 in any order for up to 500,000 ranks.
void fill_summand(std::span<float> x, int rank);
// Counts the elements that are not the sum of the summands of ranks 0 .. ranks-1.
std::size_t count_wrong_sums(std::span<const float> x, int ranks);

// Fills a block that one rank sends to another in a round of exchanges.
void fill_block(std::span<std::uint32_t> x, int from, int to, int round);
std::size_t count_wrong_words(std::span<const std::uint32_t> x, int from, int to, int round);

// Returns a rank's partner in a round of exchanges. `ranks` is even; over rounds 0 .. ranks-2 each rank has every other
// one as its partner once.
int partner_of(int rank, int round, int ranks);

}  // namespace ms::net
