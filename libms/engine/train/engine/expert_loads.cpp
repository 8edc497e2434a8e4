#include "train/engine/expert_loads.h"

#include "tensor/section.h"

namespace ms::train {

using tensor::Copy;
using tensor::Fill;

ExpertLoads::ExpertLoads(const Plan& plan, const mesh::Coord& at, const RankTensors& tensors, const RankGroups& groups)
    : all_(tensors.expert_loads), groups_(groups) {
  for (std::size_t c = 0; c < tensors.chunks.size(); ++c) {
    std::int64_t layer = plan.part(at.pp, static_cast<int>(c)).layer_begin;
    for (const auto& [bias, chosen, load] : tensors.chunks[c].routers) {
      const std::int64_t number = layer++;
      if (!load) continue;
      parts_.push_back({number * load.cols, load});
      groups.compute->submit(Fill{load});
    }
  }
}

void ExpertLoads::issue() const {
  tensor::Stream& compute = *groups_.compute;
  {
    const tensor::Section section(compute, trace::Kind::other_compute);
    compute.submit(Fill{all_});
    for (const Part& part : parts_) {
      compute.submit(Copy{all_.slice_cols(part.at, part.load.cols), part.load});
      compute.submit(Fill{part.load});
    }
  }
  groups_.world->stream().wait(compute.record());
  groups_.world->all_reduce(all_);
  compute.wait(groups_.world->stream().record());
}

}  // namespace ms::train
