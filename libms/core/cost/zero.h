// ZeRO: bytes of a parameter on a rank, over d data-parallel ranks.
#pragma once

#include <cstddef>

namespace ms::cost {

// Bytes of a parameter on one rank where nothing is sharded.
struct StateBytes {
  double parameter;  // in the compute type; sharded by ZeRO 3
  double gradient;   // f32 or bf16; sharded by ZeRO 2 and 3
  double optimizer;  // master copy and the optimizer's states; sharded by ZeRO 1 to 3
};

// A bf16 parameter has an f32 master copy, an f32 one is its own.
// `optimizer_states`: of a parameter in f32, on average; two in bf16 count as one.
constexpr StateBytes state_bytes(bool bf16, bool bf16_gradients, double optimizer_states) {
  return {bf16 ? 2.0 : 4.0, bf16_gradients ? 2.0 : 4.0, (bf16 ? 4.0 : 0.0) + 4.0 * optimizer_states};
}

// `zero` is 0 to 3. ZeRO 2 needs one chunk's gradient buffer on top, ZeRO 3 buffers of the spans in use.
constexpr double zero_bytes_per_parameter(const StateBytes& state, int zero, int d) {
  return state.parameter / (zero >= 3 ? d : 1) + state.gradient / (zero >= 2 ? d : 1) +
         state.optimizer / (zero >= 1 ? d : 1);
}

}  // namespace ms::cost
