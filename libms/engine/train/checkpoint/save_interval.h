// How often a run saves whose saves go by time. Pure.
#pragma once

#include <cstddef>
#include <optional>

#include "train/config.h"

namespace ms::train {

// Mean time between failures, in seconds, of a job of so many nodes of which nothing is known yet: Llama 3 405B had 419
// unexpected interruptions in 54 days on 2,048 nodes (arXiv 2407.21783, table 5).
double usual_mtbf_s(std::size_t nodes);

// Seconds between two saves, as [checkpoint] has it without every_steps; 0: only the last step is saved. `stall_s`:
// what the last save cost the run, nullopt: not measured yet. `mtbf_s`, above 0: of the whole job, for every = "auto".
double save_interval_s(const CheckpointConfig& config, std::optional<double> stall_s, double mtbf_s);

}  // namespace ms::train
