// Finds the operations of a rank in a training step by issuing one on a simulated device: nothing runs, and no tensor
// is allocated. Callable from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "cost/mfu.h"
#include "cost/op_class.h"
#include "tensor/ops.h"
#include "train/plan.h"

namespace ms::train {

// Returns one operation of every distinct form (shapes, types, alignment): a device prepares a plan for each.
std::vector<tensor::Op> operations_of_step(const Plan& plan, int ranks_on_node, int rank);

// The sum over all operations of a class: their number, their floating-point operations, and the bytes of memory
// traffic that cannot be avoided (tensor::cost_of).
struct Work {
  std::int64_t operations = 0;
  double flops = 0, bytes = 0;
  double least_s = 0;  // each operation at the device's ceiling, of arithmetic or of memory; 0 without a device
};
using StepWork = std::array<Work, cost::kOpClasses>;  // by cost::OpClass
StepWork work_of_step(const Plan& plan, int rank, const std::optional<cost::Ceilings>& device = {});

}  // namespace ms::train
