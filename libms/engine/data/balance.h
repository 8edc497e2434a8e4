// Divides the samples of a step among dp ranks and microbatches so that attention takes about as long on each. Where a
// token attends to its own document alone, a sample's attention is proportional to the sum of its documents' squared
// lengths, and one of a single long document takes as long as dozens of short ones together. All else of a sample
// depends on its tokens, which are the same for all. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/token_file.h"

namespace ms::data {

// How a step's batch is divided: each dp rank takes microbatches of `microbatch` samples.
struct Division {
  int dp = 1;
  std::int64_t microbatch = 1;
};

// Returns the sum of the squared lengths of the documents in the `seq` tokens from `begin` on. Reads the index alone.
double attention_work(const TokenFile& file, std::int64_t begin, std::int64_t seq);

// Returns for each row of the batch, rank after rank and microbatch after microbatch, which sample it is: a
// permutation. First the samples of a microbatch are chosen, then the microbatches of a rank: the longest first, each
// to where least is (Graham's LPT rule, with as many for each), and then pairs change places while that helps the
// slowest. `division` divides the samples.
std::vector<std::int64_t> balance(std::span<const double> work, const Division& division);

// Returns the largest work of a dp rank over their mean, for rows in this order; 1 where there is no work.
double imbalance(std::span<const double> work, std::span<const std::int64_t> rows, int dp);

}  // namespace ms::data
