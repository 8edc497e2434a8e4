#include "trace/kinds.h"

#include <algorithm>
#include <array>
#include <utility>

namespace ms::trace {
namespace {

constexpr std::array<std::pair<Kind, std::string_view>, 28> kKindNames{{
    {Kind::other, "other"},
    {Kind::step, "step"},
    {Kind::data_wait, "data_wait"},
    {Kind::save, "save"},
    {Kind::forward, "forward"},
    {Kind::backward, "backward"},
    {Kind::backward_input, "backward_input"},
    {Kind::backward_weight, "backward_weight"},
    {Kind::optimizer, "optimizer"},
    {Kind::other_compute, "other_compute"},
    {Kind::all_reduce, "all_reduce"},
    {Kind::reduce_scatter, "reduce_scatter"},
    {Kind::all_gather, "all_gather"},
    {Kind::broadcast, "broadcast"},
    {Kind::send, "send"},
    {Kind::recv, "recv"},
    {Kind::barrier, "barrier"},
    {Kind::all_to_all, "all_to_all"},
    {Kind::other_comm, "other_message"},
    {Kind::matmul, "matmul"},
    {Kind::attention, "attention"},
    {Kind::norm, "norm"},
    {Kind::activation, "activation"},
    {Kind::embedding, "embedding"},
    {Kind::loss, "loss"},
    {Kind::elementwise, "elementwise"},
    {Kind::update, "update"},
    {Kind::init, "init"},
}};

constexpr std::array<std::string_view, kPurposes> kPurposeNames{"",          "forward",    "backward",  "params",
                                                                "grads",     "embedding",  "layernorm", "clip",
                                                                "optimizer", "evaluation", "checkpoint"};

constexpr std::array<std::string_view, kGroupAxes> kAxisNames{"other", "tp", "dp", "pp", "world"};

}  // namespace

std::string_view to_string(Kind kind) {
  const auto* const found = std::ranges::find(kKindNames, kind, &std::pair<Kind, std::string_view>::first);
  return found == kKindNames.end() ? "?" : found->second;
}

std::string_view to_string(Purpose purpose) {
  const auto i = static_cast<std::size_t>(purpose);
  return i < kPurposeNames.size() ? kPurposeNames[i] : "?";
}

std::string_view to_string(GroupAxis axis) { return kAxisNames[static_cast<std::size_t>(axis)]; }

GroupAxis axis_of(std::string_view group_name) {
  const std::string_view word = group_name.substr(0, group_name.find_first_of(". [0123456789"));
  if (word == "tp") return GroupAxis::tp;
  if (word == "dp" || word == "edp") return GroupAxis::dp;
  if (word == "pp" || word == "embed") return GroupAxis::pp;
  if (word == "world") return GroupAxis::world;
  return GroupAxis::other;
}

}  // namespace ms::trace
