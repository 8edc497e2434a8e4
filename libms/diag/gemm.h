// A square GEMM with fixed inputs, which perf.gemm times and perf.bits repeats.
#pragma once

#include <memory>
#include <span>

#include "tensor/stream.h"

namespace ms::diag {

class Gemm {
 public:
  Gemm(tensor::Device& device, tensor::DType dtype, std::int64_t side);

  tensor::Matmul op() const { return {.c = c_, .a = a_, .b = b_, .bias = {}}; }
  std::span<const std::byte> result() const { return {c_.data, static_cast<std::size_t>(c_.size_bytes())}; }
  double flops() const;

 private:
  std::unique_ptr<tensor::Memory> memory_;
  tensor::Tensor a_, b_, c_;
};

}  // namespace ms::diag
