#include "tensor/tensor.h"

#include "tensor/ops.h"

namespace ms::tensor {

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f64: return "f64";
    case DType::i32: return "i32";
  }
  return "?";
}

}  // namespace ms::tensor
