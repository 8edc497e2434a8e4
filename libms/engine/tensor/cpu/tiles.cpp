// Whether this process may use tiles.
#include "tensor/cpu/tiles.h"

#if defined(__AMX_BF16__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ms::tensor::MS_ISA {

bool may_use_tiles() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAmxBf16 = 1U << 22, kAmxTile = 1U << 24;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) {
    return false;
  }
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h, Linux 5.16
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace ms::tensor::MS_ISA

#endif
