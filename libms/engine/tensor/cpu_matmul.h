// Matmuls on the CPU: by oneDNN on AVX-512, and by kernels of our own (cpu/matmul.cpp) where oneDNN is slower, or where
// its bits depend on the whole shape. Processors without AVX512_BF16 have no fast bf16: there a bf16 matmul is computed
// in f32, which is slower and logged once.
#pragma once

#include <memory>

#include "tensor/ops.h"

namespace ms::tensor {

// A cache of compiled primitives, by shape. Shared by the streams of a process; thread-safe. Uses the calling thread's
// team (tensor/team.h). A row of the result has the same bits for every number of threads, and whichever other rows are
// computed with it.
class MatmulCache {
 public:
  enum class Bf16 { as_the_cpu_has_it, in_f32 };

  explicit MatmulCache(Bf16 bf16 = Bf16::as_the_cpu_has_it);
  ~MatmulCache();
  // Throws Error("tensor.matmul") with oneDNN's message.
  void run(const Matmul& op);
  void run(const GroupedMatmul& op);
  bool native_bf16() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::tensor
