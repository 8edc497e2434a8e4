// The cost of an op, independent of any device: floating-point operations and the bytes of memory that cannot be
// avoided, including those of rounding operands to fp8. The module cost turns them into seconds. Pure.
#pragma once

#include "cost/roofline.h"
#include "tensor/ops.h"

namespace ms::tensor {

using cost::OpCost;

OpCost cost_of(const Op& op);

}  // namespace ms::tensor
