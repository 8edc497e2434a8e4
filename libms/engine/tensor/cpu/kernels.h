// The interface of libms/engine/tensor/cpu/ to cpu_kernels.cpp: a table with one function per op and instruction set.
// Shapes and types have been checked. Included by sources of every instruction set: declarations only.
#pragma once

#include <cstddef>

#include "tensor/cpu_kernels.h"

// The ops of these sources; the few others are in cpu_kernels.cpp, compiled once.
// clang-format off
#define MS_CPU_OPS(X)                                                                                               \
  X(AttentionFwd) X(AttentionBwd) X(LayerNormFwd) X(LayerNormBwd) X(RmsNormFwd) X(RmsNormBwd) X(GeluFwd) X(GeluBwd) \
  X(SwigluFwd) X(SwigluBwd) X(Rotary) X(EmbeddingFwd) X(EmbeddingBwd) X(PositionFwd) X(PositionBwd) X(LossStats)    \
  X(LossBackward) X(Add) X(ColumnSum) X(Copy) X(Fill) X(SumInto) X(SumSquares) X(AdamW)                             \
  X(LambMoments) X(LambApply) X(MuonMomentum) X(Normalize) X(Blend) X(MuonApply) X(Route) X(RouteBwd)              \
  X(ExpertCount) X(ExpertBias) X(ExpertDispatch) X(ExpertCombine)
// clang-format on

namespace ms::tensor {

#define MS_KERNEL(Name)            \
  void (*run_##Name)(const Name&); \
  void operator()(const Name& op) const { run_##Name(op); }

struct KernelTable {
  MS_CPU_OPS(MS_KERNEL)
  void (*reduce)(ReduceKind kind, DType dtype, void* out, const void* const* in, int count, std::int64_t n);
  bool (*matmul)(const Matmul& op, MatmulDone done);
};
#undef MS_KERNEL

#if defined(__x86_64__) && !defined(MS_ONE_ISA)
namespace x86_64_v4_amx {
// Tells whether the processor has tiles of bf16 and the kernel lets this process use them, for which it asks.
bool may_use_tiles();
}  // namespace x86_64_v4_amx
#endif

// Returns working memory for a call, aligned to a cache line; throws Error("tensor.memory").
void* scratch_allocate(std::size_t bytes);
void scratch_free(void* memory) noexcept;

#ifdef MS_ISA
namespace MS_ISA {
#define MS_DECLARE(Name) void run(const Name& op);
MS_CPU_OPS(MS_DECLARE)
#undef MS_DECLARE
void reduce(ReduceKind kind, DType dtype, void* out, const void* const* in, int count, std::int64_t n);
bool matmul(const Matmul& op, MatmulDone done);
}  // namespace MS_ISA
#endif

}  // namespace ms::tensor
