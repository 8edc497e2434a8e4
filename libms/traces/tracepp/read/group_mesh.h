// The mesh of a job of PyTorch, inferred from its process groups: their descriptions (Megatron-Core, torchtitan, any
// DeviceMesh with names), their ranks, and where they have no description (DeepSpeed, older versions) what they do.
// Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// The axis that a group serves. `other`: known, and no single axis of the mesh.
enum class GroupRole : std::uint8_t { unknown, world, tp, pp, dp, cp, ep, other };
GroupRole role_of_group(std::string_view description);

// Sets the mesh and the places of ranks if the groups fit just one mesh whose axes lie as in mesh.h, and what it rests
// on; else why there is none. `trace`: of the whole run, with its ranks in order.
void infer_mesh(RunTrace& trace);

}  // namespace ms::tracepp
