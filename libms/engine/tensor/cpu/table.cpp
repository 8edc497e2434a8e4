// The kernel table of this instruction set.
#include "tensor/cpu/kernels.h"

namespace ms::tensor::MS_ISA {

const KernelTable& kernel_table() {
#define MS_ENTRY(Name) .run_##Name = run,
  static constexpr KernelTable kTable{MS_CPU_OPS(MS_ENTRY).reduce = reduce, .matmul = matmul};
#undef MS_ENTRY
  return kTable;
}

}  // namespace ms::tensor::MS_ISA
