// Which rank keeps a copy of which other rank's state in its node's memory: one on another node, because a node is what
// is lost, and in other groups of the mesh where that can be, because what hits one member of a group (a rack, a
// switch) often hits the others. Pure: every rank computes the same list without a message.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mesh/mesh.h"

namespace ms::ckpt {

// By rank, the rank that keeps its copy; `nodes` by rank. Nobody keeps more than one, so that a node keeps at most as
// many as it has ranks. Nothing for a rank where another node has no rank to spare, which happens only where one node
// has more than half of all ranks, and then to as few as possible. Where one step along the axes of the mesh leads
// every rank to another node, it is taken, the one that differs in the most axes; otherwise nodes come before groups.
std::vector<std::optional<int>> keepers(const mesh::Mesh& mesh, const std::vector<std::string>& nodes);

}  // namespace ms::ckpt
