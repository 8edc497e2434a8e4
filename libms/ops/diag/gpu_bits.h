// Silent corruption on GPUs: every GPU repeats the same GEMMs; see bits.h.
#pragma once

#include "diag/bits.h"
#include "diag/gpu.h"

namespace ms::diag {

struct GpuBits {
  std::vector<UnitBits> units = {};  // of GPUs that did not fail; only GPUs of one model are compared
  std::vector<Finding> failed = {};  // the others
  std::int64_t side = 0;             // of the matrices
};

// On all GPUs at once, for `seconds` each.
GpuBits compute_gpu_bits(std::vector<TestGpu>& gpus, double seconds, const HashFunction& hash);

}  // namespace ms::diag
