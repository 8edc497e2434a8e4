// Training steps as the what-if analysis sees them: every operation of one model replica, and how long it took on each
// dp rank in each step. Made by the readers; pure data.
//
// A lane is one (step, dp rank). All lanes have the same operations and the same dependencies, so the analysis does an
// operation's arithmetic for all lanes at once.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ms::tracepp {

// The operations of a pipeline's ranks in a step, by NDTimeline's names.
enum class OpType : std::uint8_t {
  params_all_gather,
  forward_recv,
  forward_compute,
  forward_send,
  backward_recv,
  backward_compute,
  backward_send,
  gc,
  layernorm_grads_all_reduce,
  embedding_grads_all_reduce,
  grads_reduce_scatter,
  separate_grads_all_reduce,
  optimizer_clip_main_grad,
  optimizer,
  // Only from recorders that know more: the halves of a split backward, and the parts of a chunk's gathers and
  // reductions that overlap computations which do not wait for them.
  backward_input,
  backward_weight,
  params_all_gather_beside,
  grads_reduce_scatter_beside,
};
inline constexpr int kOpTypes = 18;
std::string_view to_string(OpType type);  // "forward-compute"
std::optional<OpType> op_type(std::string_view name);

constexpr bool is_backward(OpType type) {
  return type == OpType::backward_compute || type == OpType::backward_input || type == OpType::backward_weight;
}
// Returns whether it moves data between ranks, also if this trace lacks the other side.
constexpr bool is_communication(OpType type) {
  return type != OpType::forward_compute && !is_backward(type) && type != OpType::gc && type != OpType::optimizer;
}

struct StepOp {
  OpType type;
  int sequence;  // among those of its type on its stage, from 0, in the order in which they were launched
  int stage;     // pp rank
  int chunk;     // -1: not of a chunk
  bool operator==(const StepOp&) const = default;
};
std::string to_string(const StepOp& op);  // "forward-compute 3 of stage 1"

// A step that is not compared with others: were half of one taken for a whole, it would be a fast one.
struct StepLeftOut {
  std::int64_t step;
  std::string why;  // "rank 5 lacks forward-compute 3 of stage 1": of the first rank of which something is to be said
};

struct StepTrace {
  int dp = 1, pp = 1, tp = 1;
  std::vector<std::int64_t> steps;  // their numbers, rising
  std::vector<StepOp> ops;
  // [op][step][dp rank], seconds; starts count from the beginning of the trace.
  std::vector<double> start_s, duration_s;
  std::vector<int> ranks;                  // [stage][dp rank]: the rank of the run that was traced there; -1: unknown
  std::vector<StepLeftOut> left_out = {};  // rising: steps in which some rank lacked some operation, or had others
  // The recorder wrote only transfers that took place, each with its computation's chunk, and gradients are reduced as
  // soon as those of a chunk are complete.
  bool exact = false;
  std::vector<int> dp_ranks = {};  // the dp ranks of the run that the trace contains, if some were left out; else empty

  int dp_rank(int index) const { return dp_ranks.empty() ? index : dp_ranks[static_cast<std::size_t>(index)]; }

  std::size_t lanes() const { return steps.size() * static_cast<std::size_t>(dp); }
  std::size_t at(std::size_t op, std::size_t step, int dp_rank) const {
    return op * lanes() + step * static_cast<std::size_t>(dp) + static_cast<std::size_t>(dp_rank);
  }
};

}  // namespace ms::tracepp
