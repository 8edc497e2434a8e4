#include "tracepp/steps/step_trace.h"

#include <fmt/format.h>

namespace ms::tracepp {
namespace {

constexpr std::array<std::string_view, kOpTypes> kNames{
    "params-all-gather",
    "forward-recv",
    "forward-compute",
    "forward-send",
    "backward-recv",
    "backward-compute",
    "backward-send",
    "gc",
    "layernorm-grads-all-reduce",
    "embedding-grads-all-reduce",
    "grads-reduce-scatter",
    "separate-grads-all-reduce",
    "optimizer-clip-main-grad",
    "optimizer",
    "backward-input-compute",
    "backward-weight-compute",
    "params-all-gather-beside",
    "grads-reduce-scatter-beside",
};

}  // namespace

std::string_view to_string(OpType type) { return kNames[static_cast<std::size_t>(type)]; }

std::optional<OpType> op_type(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<OpType>(i);
  }
  return {};
}

std::string to_string(const StepOp& op) {
  return fmt::format("{} {} of stage {}", to_string(op.type), op.sequence, op.stage);
}

}  // namespace ms::tracepp
