#include "train/engine/module_norms.h"

#include <algorithm>

#include "tensor/section.h"

namespace ms::train {

std::string_view module_of(std::string_view parameter) {
  const int words = parameter.starts_with("layers.") ? 3 : 1;
  std::size_t end = 0;
  for (int word = 0; word < words && end != std::string_view::npos; ++word) end = parameter.find('.', end + 1);
  return parameter.substr(0, end);
}

std::vector<std::string> module_names(const nn::ModelConfig& model) {
  std::vector<std::string> names;
  for (const ckpt::Slice& parameter : model_parameters(model)) {
    const std::string_view name = module_of(parameter.name);
    if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
  }
  return names;
}

ModuleNorms::ModuleNorms(const Plan& plan, const mesh::Coord& at, const RankTensors& tensors, const RankGroups& groups)
    : squares_(tensors.module_squares), groups_(groups) {
  const std::vector<std::string> names = module_names(plan.settings.model);
  for (const HeldGradient& held : held_gradients(plan, at, tensors)) {
    parts_.push_back({std::ranges::find(names, module_of(held.parameter)) - names.begin(), held.gradient});
  }
}

void ModuleNorms::issue() const {
  tensor::Stream& compute = *groups_.compute;
  const trace::Scope scope(compute.device().recorder(), {.purpose = trace::Purpose::clip});
  {
    const tensor::Section section(compute, trace::Kind::other_compute);
    compute.submit(tensor::Fill{squares_});
    for (const Part& part : parts_) {
      compute.submit(tensor::SumSquares{squares_.slice_cols(part.module, 1), part.gradient});
    }
  }
  groups_.world->stream().wait(compute.record());
  groups_.world->all_reduce(squares_);
  compute.wait(groups_.world->stream().record());
}

}  // namespace ms::train
