// Runs that take the ranks that they are given: which data-parallel sizes a configuration allows, all with the same
// global batch. A run may resume with any of them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/config.h"

namespace ms::train {

// From mesh.dp_min to mesh.dp_max, in order, those that break no rule between settings; mesh.dp does not matter.
std::vector<std::int64_t> allowed_dp(const Settings& settings);
// Sets mesh.dp to the largest of them, and returns them all. Where there is none, to the one that breaks the fewest
// rules.
std::vector<std::int64_t> choose_dp(Settings& settings);
// Sets mesh.dp to what so many ranks make. Error("mesh.size", user): that is none of `sizes`.
void take_ranks(mesh::MeshConfig& mesh, const std::vector<std::int64_t>& sizes, std::int64_t world);
// "1, 2 or 4".
std::string sizes_text(const std::vector<std::int64_t>& sizes);

}  // namespace ms::train
