// The load of experts, for metrics: how many tokens each of them had since the last report.
#pragma once

#include <vector>

#include "train/engine/rank_groups.h"
#include "train/engine/rank_tensors.h"

namespace ms::train {

class ExpertLoads {
 public:
  // Clears what the rank's layers count. `tensors` has expert_loads; the groups outlive this object.
  ExpertLoads(const Plan& plan, const mesh::Coord& at, const RankTensors& tensors, const RankGroups& groups);

  // Issues the sums over the world to RankTensors::expert_loads, by layer and expert, and clears what the layers
  // counted: after a step's last backward. Collective over the world.
  void issue() const;

 private:
  struct Part {
    std::int64_t at;  // where the layer's experts begin
    tensor::Tensor load;
  };
  std::vector<Part> parts_;
  tensor::Tensor all_;
  const RankGroups& groups_;
};

}  // namespace ms::train
