// Prepares a rank's GPU before the first step of a run: plans and algorithms for all operations of a step. Ranks that
// compute the same must do it in the same way, and so must a resumed run. So autotuned algorithms are passed from rank
// to rank, kept in a file for the next run, and saved with checkpoints.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "comm/world.h"
#include "train/plan.h"

namespace ms::train {

class Preparation {
 public:
  // Collective over the world where run.matmul_choices names a file; before the engine has its memory: GEMMs are
  // timed in the free part. A CPU needs none of this. Throws Error("tensor.memory", user) where the GPU has no room for
  // the run's tensors and what operations take beside them.
  Preparation(const Plan& plan, comm::World& world, tensor::Device& device, std::chrono::milliseconds deadline);

  // Applies the choices of the checkpoint that the run resumes from; matmuls that they lack keep their algorithm.
  // Local, while nothing is in flight.
  void take(const std::string& choices);
  // Returns the choices as text, for checkpoints; empty if there are none.
  std::string choices() const { return choices_.to_text(); }

 private:
  void choose(const Plan& plan, comm::World& world, std::chrono::milliseconds deadline);
  void check_memory(const Plan& plan, comm::World& world, std::int64_t scratch_bytes) const;

  tensor::Device& device_;
  std::vector<tensor::Op> ops_;
  tensor::MatmulChoices choices_;
};

}  // namespace ms::train
