// What an operation of the list costs, apart from any device: floating-point operations and bytes of memory that cannot
// be avoided. room cost turns them into seconds. Pure.
#pragma once

#include "cost/roofline.h"
#include "tensor/ops.h"

namespace ms::tensor {

struct OpCost {
  OpClass op_class = OpClass::elementwise;
  // FLOPs: multiply-adds count twice; of attention, those of the pairs that the mask leaves. Bytes: each element read
  // once and written once; what is added into, both.
  cost::Work work = {};
  bool operator==(const OpCost&) const = default;
};
OpCost cost_of(const Op& op);

}  // namespace ms::tensor
