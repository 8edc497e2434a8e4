// everywhere(): runs on every instruction set of this machine.
#include "support.h"
#include "tensor/team.h"

namespace ms::tensor::test {

void everywhere(Memory& memory, const Op& op, const std::function<void()>& check) {
  const Memory::Image before = memory.save();
  for (const CpuKernels* kernels : variants()) {
    SCOPED_TRACE(fmt::format("{} on {}", op_name(op), to_string(kernels->isa)));
    set_team_threads(1);
    memory.restore(before);
    kernels->run(op);
    EXPECT_TRUE(memory.guards_intact());
    EXPECT_TRUE(memory.inputs_as_in(before, op));
    check();
    const Memory::Image one = memory.save();
    for (const int threads : {2, 3}) {
      set_team_threads(threads);
      memory.restore(before);
      kernels->run(op);
      EXPECT_TRUE(memory.save() == one) << "the bits of " << threads << " threads differ from those of one";
    }
  }
}

}  // namespace ms::tensor::test
