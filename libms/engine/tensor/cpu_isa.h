// The instruction set that this process computes with: the best that the processor, the kernel and
// ONEDNN_MAX_CPU_ISA allow. Results have the same bits on one instruction set; from one to another they may differ.
#pragma once

#include <cstdint>
#include <string_view>

namespace ms::tensor {

// From the most basic one up; each includes those before it. `generic` is what the compiler assumes if there is one
// build only: on processors other than x86, and with sanitizers.
enum class CpuIsa : std::uint8_t { generic, sse41, avx2, avx512, avx512_bf16, amx_bf16 };

std::string_view to_string(CpuIsa isa);

// Returns the instruction set that a value of ONEDNN_MAX_CPU_ISA allows, by oneDNN's names in upper or lower case. As
// in oneDNN, an unknown name limits nothing.
CpuIsa isa_limit(std::string_view max_cpu_isa);
// The same for the environment of this process.
CpuIsa isa_limit();

// Returns the best instruction set of this machine. Asks the kernel for AMX on behalf of the process.
CpuIsa machine_isa();
// Returns the instruction set that is used under a limit: the lesser of the two; or, with the highest limit, which
// limits nothing, AVX-512 without bf16 where that is faster.
CpuIsa isa_within(CpuIsa limit);
// Returns the instruction set in use. The first call decides.
CpuIsa cpu_isa();

}  // namespace ms::tensor
