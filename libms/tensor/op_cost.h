// What an operation of the list costs, apart from any device: floating-point operations and bytes of memory that cannot
// be avoided; of factors in eight bits, those of their rounding too. room cost turns them into seconds. Pure.
#pragma once

#include "cost/roofline.h"
#include "tensor/ops.h"

namespace ms::tensor {

using cost::OpCost;

OpCost cost_of(const Op& op);

}  // namespace ms::tensor
