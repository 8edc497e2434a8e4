// Norms of gradients by module of the model, for metrics: where a run diverges, one module is ahead of the others. A
// module is what a user can name: "embed", "layers.3.attn", "layers.3.norm2", "final_norm", "head".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "train/engine/rank_groups.h"
#include "train/engine/state.h"

namespace ms::train {

// Returns the module of a parameter: "layers.3.attn" of "layers.3.attn.q.weight".
std::string_view module_of(std::string_view parameter);
// Returns the modules of the whole model, in its order; the same on every rank.
std::vector<std::string> module_names(const nn::ModelConfig& model);

class ModuleNorms {
 public:
  // Sums into `squares`, f64 [1,n] by module_names(). The groups outlive it.
  ModuleNorms(const Plan& plan, const mesh::Coord& at, const RankTensors& tensors, const RankGroups& groups);

  // Issues the sums of squares of the step's gradients over the world, each element of the model once: after the
  // gradients are reduced, before the next step clears them. Clipping does not change them. Collective over the world.
  void issue() const;

 private:
  struct Part {
    std::int64_t module;
    tensor::Tensor gradient;
  };
  std::vector<Part> parts_;
  tensor::Tensor squares_;
  const RankGroups& groups_;
};

}  // namespace ms::train
