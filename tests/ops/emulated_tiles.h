// The instructions of AMX_BF16 that libms/engine/tensor/cpu/tiles.h uses, as Intel's manual defines them, so that its
// kernels are tested on processors without AMX. Subnormal numbers, which the processor takes for 0, are kept here.
#pragma once

#include "tensor/cpu/pairs.h"

namespace ms::tensor::MS_ISA {

struct EmulatedTile {
  alignas(64) Pair rows[16][16];
};
inline thread_local EmulatedTile emulated_tiles[8];
inline thread_local bool emulated_tiles_have_shape = false;  // without one the processor raises an exception

MS_INLINE EmulatedTile& emulated_tile(int index) {
  if (!emulated_tiles_have_shape) __builtin_trap();
  return emulated_tiles[index];
}

template <int kRegister>
MS_INLINE void tile_zero() {
  __builtin_memset(&emulated_tile(kRegister), 0, sizeof(EmulatedTile));
}
template <int kRegister>
MS_INLINE void tile_load(const void* data, std::int64_t stride_bytes) {
  for (int i = 0; i < 16; ++i) {
    __builtin_memcpy(emulated_tile(kRegister).rows[i], static_cast<const char*>(data) + i * stride_bytes, 64);
  }
}
template <int kRegister>
MS_INLINE void tile_store(void* data, std::int64_t stride_bytes) {
  for (int i = 0; i < 16; ++i) {
    __builtin_memcpy(static_cast<char*>(data) + i * stride_bytes, emulated_tile(kRegister).rows[i], 64);
  }
}
template <int kC, int kA, int kB>
MS_INLINE void tile_dot() {
  const EmulatedTile &a = emulated_tile(kA), &b = emulated_tile(kB);
  EmulatedTile& c = emulated_tile(kC);
  constexpr std::uint32_t kHigh = 0xFFFF0000U;
  for (int m = 0; m < 16; ++m) {
    Vf even{}, odd{};
    for (int k = 0; k < 16; ++k) {
      const Vu left = a.rows[m][k] - Vu{}, right = load_pairs(b.rows[k]);
      even += reinterpret_cast<Vf>(left << 16) * reinterpret_cast<Vf>(right << 16);
      odd += reinterpret_cast<Vf>(left & kHigh) * reinterpret_cast<Vf>(right & kHigh);
    }
    const Vf sum = reinterpret_cast<Vf>(load_pairs(c.rows[m])) + (even + odd);
    store_pairs(c.rows[m], reinterpret_cast<Vu>(sum));
  }
}

class TileSession {
 public:
  TileSession() {
    emulated_tiles_have_shape = true;
    for (int i = 0; i < 8; ++i) __builtin_memset(&emulated_tile(i), 0, sizeof(EmulatedTile));
  }
  ~TileSession() { emulated_tiles_have_shape = false; }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
};

}  // namespace ms::tensor::MS_ISA
