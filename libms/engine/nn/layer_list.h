// A list of layers in a key of [model], as Slurm writes the tasks of an array: "0-2,5,10-40:2". Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ms::nn {

// Tells whether a list names a layer.
bool lists_layer(std::string_view list, std::int64_t layer);
// Returns how many of the layers [0, layers) a list names.
std::int64_t listed_layers(std::string_view list, std::int64_t layers);
// Returns what is wrong with a list for a model of so many layers; empty: nothing.
std::string layer_list_problem(std::string_view list, std::int64_t layers);
// Returns the list of layers in ascending order.
std::string layer_list(std::span<const std::int64_t> layers);

}  // namespace ms::nn
