// The CPU kernels: the reference implementation of the op list. The sources in libms/engine/tensor/cpu/ are compiled
// once per instruction set (their namespace is MS_ISA); cpu_isa() chooses one at start-up. Those sources use no
// containers and no streams of the standard library: the linker could keep an inline function compiled for a newer
// processor as the one copy for the whole program.
//
// An op runs on the calling thread and the helpers of its team (tensor/team.h).
#pragma once

#include <cstdint>

#include "tensor/cpu_isa.h"
#include "tensor/ops.h"

namespace ms::tensor {

enum class ReduceKind : std::uint8_t { sum, max };

// Called for blocks of a matmul's output when they are complete, on the thread that computed them.
using MatmulDone = void (*)(const Matmul& block);

struct CpuKernels {
  CpuIsa isa;
  // Every op but matmuls, which are MatmulCache's (cpu_matmul.h).
  void (*run)(const Op& op);
  // out[i] = in[0][i] (+|max) in[1][i] ... in that order; bf16 is summed in f32 and rounded once. out may be in[k].
  void (*reduce)(ReduceKind kind, DType dtype, void* out, const void* const* in, int count, std::int64_t n);
  // Computes the matmul if this instruction set has a kernel for its form; otherwise returns false and does nothing.
  // The order of an element's sum depends on nothing but K. `done` is called for every block.
  bool (*matmul)(const Matmul& op, MatmulDone done);
};

// Returns the implementation for cpu_isa().
const CpuKernels& cpu_kernels();
// Writes all implementations up to that of cpu_isa(), the most basic first, and returns their number. Tests compare
// them.
int cpu_kernel_variants(const CpuKernels** out, int capacity);

}  // namespace ms::tensor
