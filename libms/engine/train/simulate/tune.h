// Looks for the layout that trains fastest: every way to cut the model over so many ranks that fits the devices'
// memory, simulated (simulate.h), the most promising first. Deterministic unless time runs out.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/simulate/simulate.h"

namespace ms::train {

struct Layout {
  Settings settings;
  Simulation simulation;
  std::int64_t memory_bytes = 0;  // of the largest stage
};

struct Tuning {
  std::vector<Layout> best;     // the fastest first, at most TuneOptions::keep
  std::optional<Layout> given;  // the configuration as it is, where it is for so many ranks and fits
  // How many were looked at, and what became of those that are not in `best`.
  std::size_t considered = 0, too_large = 0, slower = 0, not_reached = 0;
  std::map<std::string, std::size_t> impossible;  // by the rule that they break
  std::int64_t least_bytes = 0;                   // what the smallest of those that are too large needs

  // Whether nothing that was simulated is faster than the given layout: the time may have run out before.
  bool keeps_given() const { return given && given->simulation.iteration_s <= best.front().simulation.iteration_s; }
  const Layout& fastest() const { return keeps_given() ? *given : best.front(); }
};

struct TuneOptions {
  std::size_t keep = 10;
  double patience_s = 100;  // for simulating; what is not reached is counted
};

// The settings for a run on `cluster`: run.device is "cuda" if the cluster's devices are GPUs that cost/mfu.h knows and
// a run with these settings may use them; else it stays as it is.
Settings for_devices_of(const cost::Cluster& cluster, Settings settings);

// Searches [mesh] dp, pp, tp, cp, ep, expert_tp, chunks and schedule, train.microbatch, train.recompute and [overlap]
// tp, and where parameters that optim.zero does not shard leave no room for activations, optim.zero = 3; model, batch
// and optimizer stay. Of the layouts that it keeps, mesh.first_layers and last_layers too, and optim.shard_group if it
// is 0. Throws Error("tune.none", user) where no layout fits, with what the smallest would need.
Tuning tune(const Settings& settings, const cost::Cluster& cluster, std::int64_t world, const TuneOptions& options);

// Why `other` takes longer than `best`, in a sentence: what it loses most by.
std::string why_slower(const Layout& other, const Layout& best);

}  // namespace ms::train
