// The CPU kernels: the reference implementation of the op list. The sources in libms/tensor/cpu/ are compiled once per
// instruction set (their namespace is MS_ISA); the best one that this machine runs is chosen at start-up. Those sources
// use no containers and no streams of the standard library: the linker could keep an inline function compiled for a
// newer processor as the one copy for the whole program.
//
// An op runs on the calling thread and the helpers of its team (tensor/team.h).
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
  // Computes the matmul of a weight's gradient if this is faster than oneDNN; otherwise returns false and does nothing.
  bool (*weight_gradient)(const Matmul& op);
};

// Returns the best implementation for this machine.
const CpuKernels& cpu_kernels();
// Writes all implementations that this machine can run, the most basic first, and returns their number. Tests compare
// them.
int cpu_kernel_variants(const CpuKernels** out, int capacity);

}  // namespace ms::tensor
