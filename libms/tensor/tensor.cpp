#include "tensor/tensor.h"

#include "tensor/ops.h"

namespace ms::tensor {

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
  }
  return "?";
}

std::string_view to_string(OpClass op_class) {
  switch (op_class) {
    case OpClass::matmul:
      return "matmul";
    case OpClass::attention:
      return "attention";
    case OpClass::norm:
      return "norm";
    case OpClass::activation:
      return "activation";
    case OpClass::embedding:
      return "embedding";
    case OpClass::loss:
      return "loss";
    case OpClass::elementwise:
      return "elementwise";
    case OpClass::optimizer:
      return "optimizer";
    case OpClass::init:
      return "init";
  }
  return "?";
}

}  // namespace ms::tensor
