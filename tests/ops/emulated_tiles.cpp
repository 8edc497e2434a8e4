// A program that links this, and the kernels of AMX with emulated tiles before those of libms, takes this machine for
// one with AMX. The kernels around the tiles still need AVX512_BF16.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/print.h"
#include "tensor/cpu/kernels.h"
#include "tensor/cpu_isa.h"

namespace ms::tensor {

bool x86_64_v4_amx::may_use_tiles() { return true; }

namespace {

class Emulated : public testing::Environment {
 public:
  void SetUp() override {
    if (cpu_isa() == CpuIsa::amx_bf16) return;
    print_out("not tried: emulated tiles of amx-bf16: this machine does not have avx512-bf16\n");
    std::exit(0);
  }
};

[[maybe_unused]] testing::Environment* const kEmulated = testing::AddGlobalTestEnvironment(new Emulated);

}  // namespace
}  // namespace ms::tensor
