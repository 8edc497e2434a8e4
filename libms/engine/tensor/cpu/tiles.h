// bf16 GEMMs on tiles of AMX, for processors with AMX_BF16: a tile register holds 16 rows of 64 bytes, that is 16 pairs
// of bf16 or 16 sums in f32. One instruction adds the GEMM of two tiles to a third: for each sum the 16 even terms
// and the 16 odd ones in order, then their sum. So the bits of a sum depend on its own row, column and the steps of 32
// terms, and tiles in memory are as good as tiles in registers. Sources of every instruction set include this; it
// defines something only for that one, or where a test emulates the instructions.
#pragma once

#include "tensor/cpu/pairs.h"

#if defined(__AMX_BF16__) || defined(MS_EMULATED_TILES)
#define MS_TILES

namespace ms::tensor::MS_ISA {

inline constexpr Index kTile = 16;  // rows, pairs and sums of a row

#if !defined(MS_EMULATED_TILES)

template <int kRegister>
MS_INLINE void tile_zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kRegister));
}
template <int kRegister>
MS_INLINE void tile_load(const void* data, Index stride_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(data), "r"(stride_bytes), "i"(kRegister) : "memory");
}
template <int kRegister>
MS_INLINE void tile_store(void* data, Index stride_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(data), "r"(stride_bytes), "i"(kRegister) : "memory");
}
// Adds the GEMM of the tiles a and b to the tile c.
template <int kC, int kA, int kB>
MS_INLINE void tile_dot() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

// Tiles have a shape while this lives, and the thread's tile registers nothing to save afterwards.
class TileSession {
 public:
  MS_INLINE TileSession() {
    struct alignas(64) {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const shape;
    asm volatile("ldtilecfg %0" : : "m"(shape));
  }
  MS_INLINE ~TileSession() { asm volatile("tilerelease" : :); }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
};

#endif

// Tiles of an operand: `next` leads to the next tile of rows (of columns, if it is the right one), `deeper` to the next
// 16 pairs, in pairs. The left operand's tiles are [row][pair], the right one's [pair][column].
struct TilesOf {
  const Pair* data;
  Index next, deeper, stride_bytes;
};
struct SumsOf {
  float* data;
  Index down, stride;
};

// Registers: sums of one or two tiles of rows by two of columns in 0 to 3, left tiles in 4 and 5, right ones in 6
// and 7.
template <int kDown>
MS_INLINE void load_left(const TilesOf& a, const Pair* data) {
  tile_load<4>(data, a.stride_bytes);
  if constexpr (kDown == 2) tile_load<5>(data + a.next, a.stride_bytes);
}
MS_INLINE void load_right(const TilesOf& b, const Pair* data) {
  tile_load<6>(data, b.stride_bytes);
  tile_load<7>(data + b.next, b.stride_bytes);
}
template <int kDown>
MS_INLINE void dot_loaded() {
  tile_dot<0, 4, 6>(), tile_dot<1, 4, 7>();
  if constexpr (kDown == 2) tile_dot<2, 5, 6>(), tile_dot<3, 5, 7>();
}
template <bool kAdd, int kDown>
MS_INLINE void begin_sums(const SumsOf& c, const float* data) {
  if constexpr (kAdd) {
    tile_load<0>(data, c.stride * 4), tile_load<1>(data + kTile, c.stride * 4);
    if constexpr (kDown == 2)
      tile_load<2>(data + c.down, c.stride * 4), tile_load<3>(data + c.down + kTile, c.stride * 4);
  } else {
    tile_zero<0>(), tile_zero<1>();
    if constexpr (kDown == 2) tile_zero<2>(), tile_zero<3>();
  }
}
template <int kDown>
MS_INLINE void store_sums(const SumsOf& c, float* data) {
  tile_store<0>(data, c.stride * 4), tile_store<1>(data + kTile, c.stride * 4);
  if constexpr (kDown == 2)
    tile_store<2>(data + c.down, c.stride * 4), tile_store<3>(data + c.down + kTile, c.stride * 4);
}

// c[16 * kDown][32] (+)= a b, `steps` tiles deep, for `count` blocks of as many rows; the left tiles of the next block
// are `below`. Calls beside(block, step), whose instructions of other kinds cost little while tiles are multiplied.
//
// With three parts (tile_matmul.cpp) two tiles of each follow each other in a and b, and the six largest pairs of
// parts are multiplied.
//
// The next tiles are loaded before sums are stored: a load waits for earlier stores to the same place of any page, and
// these for the multiplications.
template <bool kAdd, int kDown, int kParts, class Beside>
MS_INLINE void tile_blocks(const TilesOf& a, Index below, const TilesOf& b, const SumsOf& c, Index steps, Index count,
                           Beside&& beside) {
  static_assert(kParts == 1 || kParts == 3);
  const Index part_a = 2 * a.next, part_b = 2 * b.next;
  const auto load_first = [&](const Pair* left, const Pair* right) __attribute__((always_inline)) {
    load_left<kDown>(a, left + (kParts - 1) * part_a), load_right(b, right);
  };
  load_first(a.data, b.data);
  begin_sums<kAdd, kDown>(c, c.data);
  for (Index block = 0; block < count; ++block) {
    const bool last = block + 1 == count;
    const Pair *left = a.data + block * below, *right = b.data;
    for (Index step = 0; step < steps; ++step) {
      if constexpr (kParts == 3) {
        dot_loaded<kDown>(), load_left<kDown>(a, left + part_a);
        dot_loaded<kDown>(), load_right(b, right + part_b);
        dot_loaded<kDown>(), load_left<kDown>(a, left);
        dot_loaded<kDown>(), load_right(b, right + 2 * part_b);
        dot_loaded<kDown>(), load_right(b, right);
      }
      dot_loaded<kDown>();
      beside(block, step);
      left += a.deeper, right += b.deeper;
      if (step + 1 < steps) load_first(left, right);
    }
    float* sums = c.data + block * kDown * c.down;
    if (!last) load_first(a.data + (block + 1) * below, b.data);
    store_sums<kDown>(c, sums);
    if (!last) begin_sums<kAdd, kDown>(c, sums + kDown * c.down);
  }
}

// Transposes a tile of pairs.
MS_INLINE void transpose_tile(Pair* out, const Pair* in, Index ld) {
  Vf square[kTile];
  for (int i = 0; i < kTile; ++i) square[i] = reinterpret_cast<Vf>(load_pairs(in + i * ld));
  transpose(square);
  for (int i = 0; i < kTile; ++i) store_pairs(out + i * kTile, reinterpret_cast<Vu>(square[i]));
}

// As dot_gemm() of pairs.h, on whole tiles: rows and pairs are rounded up to 16, cols are multiples of 32. Memory
// beyond `rows` is read and written; pairs beyond `pairs` are zeros in one operand and finite in the other. Within a
// TileSession.
template <GemmKind kKind, bool kTransposed = false>
inline void tile_gemm(PairOperand a, PairOperand b, float* c, Index ldc, Index rows, Index cols, Index pairs,
                      const float* scale = nullptr) {
  constexpr Index kMost = 4 * kTile * 2 * kTile;  // pairs of a transposed operand: 64 rows, 64 terms
  const Index steps = ceil_div(pairs, kTile), down = ceil_div(rows, kTile);
  alignas(64) Pair turned[kTransposed ? kMost : 1];
  TilesOf left{a.data, kTile * a.ld, kTile, a.ld * 4};
  if constexpr (kTransposed) {
    for (Index i = 0; i < down; ++i) {
      for (Index s = 0; s < steps; ++s) {
        transpose_tile(turned + (i * steps + s) * kTile * kTile, a.data + s * kTile * a.ld + i * kTile, a.ld);
      }
    }
    left = {turned, steps * kTile * kTile, kTile * kTile, kTile * 4};
  }
  if constexpr (kKind == GemmKind::scale_add) {
    for (Index i = 0; i < rows; ++i) {
      for (Index j = 0; j < cols; j += kLanes) store(c + i * ldc + j, load(c + i * ldc + j) * scale[i]);
    }
  }
  constexpr bool kAdd = kKind != GemmKind::set;
  const auto nothing = [](Index, Index) {};
  for (Index j = 0; j < cols; j += 2 * kTile) {
    const TilesOf right{b.data + j, kTile, kTile * b.ld, b.ld * 4};
    SumsOf sums{c + j, kTile * ldc, ldc};
    if (down >= 2) tile_blocks<kAdd, 2, 1>(left, 2 * left.next, right, sums, steps, down / 2, nothing);
    if (down % 2 == 0) continue;
    TilesOf odd = left;
    odd.data += (down - 1) * left.next, sums.data += (down - 1) * sums.down;
    tile_blocks<kAdd, 1, 1>(odd, 0, right, sums, steps, 1, nothing);
  }
}

}  // namespace ms::tensor::MS_ISA

#endif
