// Matrix products on the CPU: oneDNN. It has no bf16 on processors without AVX-512: there a product of bf16 tensors is
// computed in f32, which is slower and said once in the log.
#pragma once

#include <memory>

#include "tensor/ops.h"

namespace ms::tensor {

// Compiled primitives by shape. Shared by the streams of a process; thread-safe.
class MatmulCache {
 public:
  MatmulCache();
  ~MatmulCache();
  void run(const Matmul& op);
  bool native_bf16() const;
  // As on a processor without bf16 products; for tests, before the first run().
  void disable_native_bf16();

 private:
  void run_in_f32(const Matmul& op);
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::tensor
