// Finds devices that compute wrongly and say nothing: guard.replay_every.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/world.h"
#include "train/engine/engine.h"
#include "train/plan.h"

namespace ms::train {

// Returns the dp ranks whose bits differ from those of more than half of them, in order; empty: no more than half
// agree.
std::vector<int> in_the_minority(const std::vector<std::uint64_t>& bits);

class Replay {
 public:
  // Collective over the world. Throws Error("replay.devices", user) on a rank that computes on another processor or GPU
  // than rank 0: their bits differ, and accuse nobody. Does nothing where guard.replay_every is 0.
  Replay(const Plan& plan, comm::World& world, tensor::Device& device);

  bool due(std::int64_t step) const { return every_ > 0 && (step + 1) % every_ == 0; }
  // Compares after `step` (from 0), which is due and done. Collective over the world. Throws, on every rank,
  // Error("replay.differs") with the ranks that computed wrongly, or Error("replay.tie") where that cannot be told.
  void check(Engine& engine, std::int64_t step);

 private:
  [[noreturn]] void accuse(const std::vector<int>& wrong, const std::string& what, const std::string& hint);

  const Plan& plan_;
  comm::World& world_;
  const std::int64_t every_;
  const bool on_gpu_;
  double since_s_ = 0;  // the last comparison, or the beginning
};

}  // namespace ms::train
