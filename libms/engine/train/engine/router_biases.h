// The biases of routers (model.router_bias), which change once a step without a gradient.
#pragma once

#include "train/engine/rank_groups.h"
#include "train/engine/rank_tensors.h"

namespace ms::train {

class RouterBiases {
 public:
  // `tensors` has router_biases; it and the groups outlive this object.
  RouterBiases(const RankTensors& tensors, const RankGroups& groups, double rate)
      : tensors_(tensors), groups_(groups), rate_(static_cast<float>(rate)) {}

  void initialize() const;
  // Clears what the layers count: before a step's first backward.
  void begin_step() const;
  // Issues the sums of the counts over dp, and changes the biases unless the optimizer skips the step: after it has
  // issued its update. Collective over dp.
  void finish_step() const;
  // Sends the first rank's biases to the others of tp and dp. Collective over both. Issues only.
  void share() const;

 private:
  bool changes() const { return tensors_.router_chosen && rate_ > 0; }
  const RankTensors& tensors_;
  const RankGroups& groups_;
  float rate_;
};

}  // namespace ms::train
