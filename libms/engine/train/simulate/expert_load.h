// How unevenly tokens choose the experts of a simulated step. All ranks of an ep group wait for the one whose experts
// have the most rows: it receives more and multiplies more.
#pragma once

#include <string>
#include <vector>

#include "train/plan.h"

namespace ms::train {

// Returns, for each layer, the rows of that rank as a multiple of an even share; 1 for a dense layer. `load` is
//   "uniform"   all experts have an even share
//   "zipf=S"    the n-th most chosen expert of a layer has a share in proportion to n^-S, but no expert has more rows
//               than there are tokens; which experts these are is drawn for each layer
//   FILE        the metrics.jsonl of a run of the same model: the last line with expert_load
// A capacity (train.moe_capacity) limits it. Throws Error("cli.value", user), and as base/user_path.h does.
std::vector<double> busiest_ranks(const std::string& load, const Plan& plan);

}  // namespace ms::train
