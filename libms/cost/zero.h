// ZeRO: bytes per parameter, and elements moved per parameter and step, over d data-parallel ranks.
#pragma once

#include <cstdint>

namespace ms::cost {

// What a parameter costs on one rank where nothing is sharded.
struct StateBytes {
  double parameter;  // as the products read it; sharded by ZeRO 3
  double gradient;   // sharded from ZeRO 2
  double optimizer;  // master copy and Adam's moments; sharded from ZeRO 1
};

// ms itself: gradients are summed in f32; bf16 parameters have an f32 master copy.
inline constexpr StateBytes kStateBf16{2.0, 4.0, 12.0};
inline constexpr StateBytes kStateFp32{4.0, 4.0, 8.0};
// Others, to compare with: 16-bit gradients (the ZeRO paper, DeepSpeed); fp16 gradients beside sharded f32 main
// gradients (Megatron-LM).
inline constexpr StateBytes kStateZeroPaper{2.0, 2.0, 12.0};
inline constexpr StateBytes kStateMegatronFp16{2.0, 2.0, 16.0};

enum class StateType : std::uint8_t { fp32, bf16 };
constexpr const StateBytes& state_bytes(StateType type) { return type == StateType::bf16 ? kStateBf16 : kStateFp32; }

// Bytes per parameter on each rank; `zero` is 0 to 3 (ms itself does 0 to 2). ZeRO 2 needs one chunk's gradient buffer
// on top.
constexpr double zero_bytes_per_parameter(const StateBytes& state, int zero, int d) {
  return state.parameter / (zero >= 3 ? d : 1) + state.gradient / (zero >= 2 ? d : 1) +
         state.optimizer / (zero >= 1 ? d : 1);
}

// Elements that the collectives of a step move per parameter, in units where a reduce-scatter or an all-gather of
// everything is 1 (an all-reduce is 2). `reductions` is how many times a step gradients are reduced: 1, or the number
// of microbatches for the ZeRO 2 of ms. ZeRO 3 gathers twice: before forward, and again before backward.
constexpr double zero_traffic_per_parameter(int zero, int reductions) { return reductions + (zero >= 3 ? 2.0 : 1.0); }

}  // namespace ms::cost
