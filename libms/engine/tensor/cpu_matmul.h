// Matmuls on the CPU: by oneDNN on AVX-512, and by kernels of our own (cpu/matmul.cpp) where oneDNN is slower, or where
// its bits depend on the whole shape. Below AVX512_BF16 a bf16 matmul is computed in f32.
#pragma once

#include <memory>

#include "tensor/ops.h"

namespace ms::tensor {

// A cache of compiled primitives, by shape. Shared by the streams of a process; thread-safe. Uses the calling thread's
// team (tensor/team.h). A row of the result has the same bits for every number of threads, and whichever other rows are
// computed with it.
class MatmulCache {
 public:
  MatmulCache();
  ~MatmulCache();
  // Throws Error("tensor.matmul") with oneDNN's message.
  void run(const Matmul& op);
  void run(const GroupedMatmul& op);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::tensor
