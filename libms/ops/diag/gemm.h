// A square GEMM with fixed inputs, which perf.gemm and perf.gpu time, and perf.bits and perf.gpubits repeat.
#pragma once

#include <memory>
#include <span>

#include "tensor/stream.h"

namespace ms::diag {

class Gemm {
 public:
  Gemm(tensor::Device& device, tensor::DType dtype, std::int64_t side);

  tensor::Matmul op() const { return {.c = c_, .a = a_, .b = b_, .bias = {}}; }
  const tensor::Tensor& c() const { return c_; }
  // The result's bytes, on a device whose memory is the host's.
  std::span<const std::byte> result() const { return {c_.data, static_cast<std::size_t>(c_.size_bytes())}; }
  double flops() const;

 private:
  std::unique_ptr<tensor::Memory> memory_;
  tensor::Tensor a_, b_, c_;
};

// The seconds that an op takes on a stream, by repeating it for `seconds`, in batches that wait for the device once.
double seconds_of(tensor::Stream& stream, const tensor::Op& op, double seconds);

}  // namespace ms::diag
