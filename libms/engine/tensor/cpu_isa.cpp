#include "tensor/cpu_isa.h"

#include <strings.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "tensor/cpu/kernels.h"

namespace ms::tensor {
namespace {

struct Limit {
  const char* name;  // oneDNN's
  CpuIsa isa;
};
constexpr std::array kLimits{
    Limit{"SSE41", CpuIsa::sse41},
    Limit{"AVX", CpuIsa::sse41},
    Limit{"AVX2", CpuIsa::avx2},
    Limit{"AVX2_VNNI", CpuIsa::avx2},
    Limit{"AVX2_VNNI_2", CpuIsa::avx2},
    Limit{"AVX512_CORE", CpuIsa::avx512},
    Limit{"AVX512_CORE_VNNI", CpuIsa::avx512},
    Limit{"AVX512_CORE_BF16", CpuIsa::avx512_bf16},
    Limit{"AVX512_CORE_FP16", CpuIsa::avx512_bf16},
};

}  // namespace

std::string_view to_string(CpuIsa isa) {
  constexpr std::array<std::string_view, 6> kNames{"generic", "sse4.1", "avx2", "avx512", "avx512-bf16", "amx-bf16"};
  return kNames[static_cast<std::size_t>(isa)];
}

CpuIsa isa_limit(std::string_view max_cpu_isa) {
  const std::string name(max_cpu_isa);
  const auto* const row =
      std::ranges::find_if(kLimits, [&](const Limit& limit) { return strcasecmp(limit.name, name.c_str()) == 0; });
  return row != kLimits.end() ? row->isa : CpuIsa::amx_bf16;
}

CpuIsa isa_limit() {
  const char* name = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (name == nullptr) name = std::getenv("DNNL_MAX_CPU_ISA");
  return isa_limit(name != nullptr ? name : "");
}

CpuIsa machine_isa() {
#if defined(__x86_64__) && !defined(MS_ONE_ISA)
  if (!__builtin_cpu_supports("x86-64-v3")) return CpuIsa::sse41;
  if (!__builtin_cpu_supports("x86-64-v4")) return CpuIsa::avx2;
  if (!__builtin_cpu_supports("avx512bf16")) return CpuIsa::avx512;
  return x86_64_v4_amx::may_use_tiles() ? CpuIsa::amx_bf16 : CpuIsa::avx512_bf16;
#else
  return CpuIsa::generic;
#endif
}

CpuIsa isa_within(CpuIsa limit) {
  const CpuIsa isa = std::min(limit, machine_isa());
#if defined(__x86_64__) && !defined(MS_ONE_ISA)
  // Intel's processors have tiles for bf16: where they may not be used, their dot product runs at half the rate of
  // f32 (Emerald Rapids: 160 GFLOP/s of two cores, f32 300).
  if (isa == CpuIsa::avx512_bf16 && limit == CpuIsa::amx_bf16 && __builtin_cpu_is("intel")) return CpuIsa::avx512;
#endif
  return isa;
}

CpuIsa cpu_isa() {
  static const CpuIsa kIsa = isa_within(isa_limit());
  return kIsa;
}

}  // namespace ms::tensor
