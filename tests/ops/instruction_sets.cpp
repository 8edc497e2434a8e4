// Linked into programs that are also run once for each instruction set, with ONEDNN_MAX_CPU_ISA. Ends such a run at
// once if it would repeat another, and prints which instruction set this machine cannot try.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/print.h"
#include "tensor/cpu_isa.h"

namespace ms::tensor::test {
namespace {

class Limited : public testing::Environment {
 public:
  void SetUp() override {
    const char* limit = std::getenv("ONEDNN_MAX_CPU_ISA");
    if (limit == nullptr || *limit == 0) return;
    const CpuIsa wanted = isa_limit();
    const bool usual = wanted == isa_within(CpuIsa::amx_bf16);
    if (wanted <= machine_isa() && !usual) return;
    print_out("{}{}\n",
              usual ? "what the run without a limit uses: " : "not tried, not on this machine: ", to_string(wanted));
    std::exit(0);
  }
};

[[maybe_unused]] testing::Environment* const kLimited = testing::AddGlobalTestEnvironment(new Limited);

}  // namespace
}  // namespace ms::tensor::test
