// The plain ops: the CPU implementation of the op list, which is the truth for every other device. The sources in
// libms/tensor/cpu/ are compiled once per instruction set (their namespace is MS_ISA); the best one that this machine
// runs is chosen at start-up. Those sources use no containers and no streams of the standard library: an inline
// function of theirs, compiled for a new processor, could be the copy that the linker keeps for everybody.
//
// An op runs on the calling thread and the OpenMP team that thread is allowed (omp_set_num_threads by the worker).
#pragma once

#include <cstdint>

#include "tensor/ops.h"

namespace ms::tensor {

enum class ReduceKind : std::uint8_t { sum, max };

struct CpuKernels {
  const char* isa;
  // Every op but Matmul, which is oneDNN's (cpu_matmul.h).
  void (*run)(const Op& op);
  // out[i] = in[0][i] (+|max) in[1][i] ... in that order; bf16 is summed in f32 and rounded once. out may be in[k].
  void (*reduce)(ReduceKind kind, DType dtype, void* out, const void* const* in, int count, std::int64_t n);
  // The product of a weight's gradient, where this is faster than oneDNN; false, and nothing done, where it is not.
  bool (*weight_gradient)(const Matmul& op);
};

// The best implementation for this machine.
const CpuKernels& cpu_kernels();
// All that this machine can run, the plainest first (tests compare them).
int cpu_kernel_variants(const CpuKernels** out, int capacity);

}  // namespace ms::tensor
