// Matmuls on the CPU, by oneDNN. It has no fast bf16 on processors without AVX512_BF16: there a bf16 matmul is computed
// in f32, which is slower and logged once.
#pragma once

#include <memory>

#include "tensor/ops.h"

namespace ms::tensor {

// A cache of compiled primitives, by shape. Shared by the streams of a process; thread-safe. Uses the calling thread's
// team (tensor/team.h); the result has the same bits for every number of threads.
class MatmulCache {
 public:
  enum class Bf16 { as_the_cpu_has_it, in_f32 };

  explicit MatmulCache(Bf16 bf16 = Bf16::as_the_cpu_has_it);
  ~MatmulCache();
  // Throws Error("tensor.matmul") with oneDNN's message.
  void run(const Matmul& op);
  bool native_bf16() const;
  // Tells whether rows of the result (a not transposed) have the same bits when computed alone: true on AVX-512
  // processors.
  bool rows_stand_alone() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::tensor
