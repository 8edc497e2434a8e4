// Shared by the two implementations of attention: attention.cpp computes in f32, attention_pairs.cpp on pairs of bf16
// on processors with AVX512_BF16. Both iterate over tiles of kQueries x kKeys scores.
#pragma once

#include "tensor/cpu/parallel.h"

namespace ms::tensor::MS_ISA {

inline constexpr Index kQueries = 64, kKeys = 64;
inline constexpr float kLog2e = 1.44269504F, kLn2 = 0.69314718F;

MS_INLINE constexpr Index whole_vectors(Index n) { return (n + kLanes - 1) / kLanes * kLanes; }

// The keys that a tile of queries sees.
struct Mask {
  Index window;
  // The first keys of the documents of a tile's queries, less its first query. Absent: a sequence is one document.
  const std::int32_t* starts = nullptr;
  Index first_start = 0, last_start = 0;  // of the documents of the tile's first and last query
  // The first key that a tile of queries sees, which begins at `base`.
  Index first_key(Index base) const {
    const Index near = window > 0 ? most(0, base - window + 1) : 0;
    return starts != nullptr ? most(near, first_start) : near;
  }
  // Tells whether some query of [q0, q0 + br) does not see some key of [c0, c0 + bc).
  bool cuts(Index q0, Index br, Index c0, Index bc) const {
    return c0 + bc - 1 > q0 || (window > 0 && c0 <= q0 + br - 1 - window) || c0 < last_start;
  }
  // Returns, for one key, the lanes of queries r, r+1, ... of the tile that see it. `offset` is key - r - q0.
  MS_INLINE Vi sees(Vi lane, Index offset, Index r) const {
    Vi seen = lane >= static_cast<std::int32_t>(offset);
    if (window > 0) seen &= lane < static_cast<std::int32_t>(offset + window);
    if (starts != nullptr) {
      Vi start;
      __builtin_memcpy(&start, starts + r, sizeof start);
      seen &= start <= static_cast<std::int32_t>(offset + r);
    }
    return seen;
  }
};

struct AttentionShape {
  template <class Attention>
  explicit AttentionShape(const Attention& op)
      : batch(op.batch),
        keys(op.keys()),
        keys_first(op.keys_first),
        first(op.first),
        queries(op.queries()),
        heads(op.heads),
        kv_heads(op.kv_heads),
        d(op.head_dim),
        d_padded(whole_vectors(d)),
        query_tiles(ceil_div(first + queries, kQueries) - first / kQueries),
        mask{op.window},
        score_scale(op.scale * kLog2e) {}
  Index work() const {
    return batch * heads * queries * most(1, least(keys, mask.window > 0 ? mask.window : keys) / 2) * d;
  }
  // The queries of a tile that are there: all of them but in the first and the last one. Tiles begin at multiples of
  // kQueries whatever is there, so that each query meets the same tiles of keys.
  struct Queries {
    Index begin, count;
  };
  Queries of_tile(Index tile) const {
    const Index base = (first / kQueries + tile) * kQueries, begin = most(base, first);
    return {begin, least(base + kQueries, first + queries) - begin};
  }
  // The keys of those that are there which a tile's queries, [q0, q0 + br), may see: none if `end` is not above
  // `begin`.
  struct Keys {
    Index begin, end;
    // Whether a first tile of keys is of all queries from q0 on: what it computes of them needs no sum before it.
    bool begins_for_all(Index q0) const { return begin < end && begin <= q0; }
  };
  Keys of_queries(const Mask& tile_mask, Index q0, Index br) const {
    return {most(tile_mask.first_key(q0 / kQueries * kQueries), keys_first), least(q0 + br, keys_first + keys)};
  }
  Index batch, keys, keys_first, first, queries, heads, kv_heads, d, d_padded, query_tiles;
  Mask mask;
  float score_scale;
};

template <class T>
const T* head_rows(const Tensor& x, Index row, Index head, Index d) {
  return row_of<T>(x, row) + head * d;
}

// The starts of a tile's queries, for Mask.
struct TileStarts {
  alignas(64) std::int32_t values[kQueries];
};
template <class Attention>
Mask mask_of(const Attention& op, const Mask& mask, Index b, Index q0, Index br, TileStarts& starts) {
  if (!op.starts) return mask;
  const std::int32_t *all = row_of<std::int32_t>(op.starts, 0) + b * op.seq, *of_tile = all + q0;
  for (Index r = 0; r < kQueries; ++r) starts.values[r] = of_tile[least(r, br - 1)] - static_cast<std::int32_t>(q0);
  return {mask.window, starts.values, all[q0 / kQueries * kQueries], of_tile[br - 1]};
}

// Carves arrays from one block of memory.
class Cutter {
 public:
  explicit Cutter(float* memory) : at_(memory) {}
  template <class T>
  T* take(Index elements) {
    auto* begin = reinterpret_cast<T*>(at_);
    at_ += floats<T>(elements);
    return begin;
  }
  template <class T>
  static constexpr Index floats(Index elements) {
    return whole_vectors((elements * static_cast<Index>(sizeof(T)) + 3) / 4);
  }

 private:
  float* at_;
};

// The maximum and the sum of a tile's queries so far, of scores times log2(e), and the factors that correct sums made
// with the maximum before.
struct RowSums {
  // Begins without keys, or with those whose sums are in `lse`.
  RowSums(const float* lse, Index br) {
    for (Index r = 0; r < kQueries; ++r) {
      const bool begun = lse != nullptr && r < br;
      top[r] = begun ? lse[r] * kLog2e : -__builtin_inff(), total[r] = begun ? 1.0F : 0.0F;
    }
  }
  float lse(Index r) const { return top[r] * kLn2 + __builtin_logf(total[r]); }
  // Returns the factor of a query's sum of values.
  float share(Index r) const { return total[r] == 0 ? 0.0F : 1.0F / total[r]; }
  alignas(64) float top[kQueries], total[kQueries], rescale[kQueries];
};

// x[0..d) = scale * sum, or that is added.
template <class T>
void add_or_store(T* x, float scale, const float* sum, Index d, bool adds) {
  each_vector(d, [&](Index k, auto lanes) {
    const Vf value = scale * load(sum + k);
    store(x + k, adds ? load(x + k, lanes) + value : value, lanes);
  });
}

#if defined(__AVX512BF16__)
void forward_in_pairs(const AttentionFwd& op);
void backward_in_pairs(const AttentionBwd& op);
#endif

}  // namespace ms::tensor::MS_ISA
