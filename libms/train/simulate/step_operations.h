// What a rank computes in a training step, found by issuing one on a simulated device: nothing runs, and no tensor is
// anywhere. Any thread may.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cost/op_class.h"
#include "tensor/ops.h"
#include "train/plan.h"

namespace ms::train {

// Of every form one operation: what a device makes plans and algorithms for.
std::vector<tensor::Op> operations_of_step(const Plan& plan, int ranks_on_node, int rank);

// All operations of a class: how many, and what they take (tensor::cost_of) of floating-point operations, and of bytes
// of memory that cannot be avoided.
struct Work {
  std::int64_t operations = 0;
  double flops = 0, bytes = 0;
};
using StepWork = std::array<Work, cost::kOpClasses>;  // by cost::OpClass
StepWork work_of_step(const Plan& plan, int rank);

}  // namespace ms::train
