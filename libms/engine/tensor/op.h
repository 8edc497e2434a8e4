// Common to the structs of the op list (tensor/ops.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "cost/op_class.h"
#include "tensor/tensor.h"

namespace ms::tensor {

using cost::kOpClasses;
using cost::OpClass;  // groups ops in timing tables

enum class Access : std::uint8_t { read, write };  // write includes read-modify-write

#define MS_OP(op_name, op_class)                       \
  static constexpr std::string_view kName = (op_name); \
  static constexpr OpClass kClass = OpClass::op_class;

}  // namespace ms::tensor
