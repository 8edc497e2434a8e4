// Causal attention of bf16 on processors with AVX512_BF16 (pairs.h) and AMX (tiles.h): the tiles of attention.cpp, with
// GEMMs of twice the speed and more. Scores, sums and maxima are f32; probabilities and gradients of scores are rounded
// to bf16 where they are operands of a GEMM. Called by attention.cpp.
//
// Legend. q0, c0: first query, first key of a tile; br queries, bc keys, d the head's size padded to whole vectors of
// bf16. *_t is transposed: [d/2][kQueries] pairs along d. *_p pairs two rows: [rows/2][d]. Scores are kept with keys
// down and queries across, so that the softmax runs down the columns. Tiles on the diagonal have few keys. Columns of
// queries that see none of them are left out: `skip` is the first column that is computed.
#include "tensor/cpu/attention.h"
#include "tensor/cpu/tiles.h"

#if defined(__AVX512BF16__)

namespace ms::tensor::MS_ISA {
namespace {

// A GEMM computes whole multiples of these: rows and terms (in pairs), and columns. Memory has room for them; what is
// beyond the operands is zeros where it would be added, and otherwise never read.
#if defined(MS_TILES)
constexpr Index kDeep = kTile, kWide = 2 * kTile;
using Session = TileSession;
template <GemmKind kKind, bool kTransposed = false>
MS_INLINE void pair_gemm(PairOperand a, PairOperand b, float* c, Index ldc, Index rows, Index cols, Index pairs,
                         const float* scale = nullptr) {
  tile_gemm<kKind, kTransposed>(a, b, c, ldc, rows, cols, pairs, scale);
}
#else
constexpr Index kDeep = 1, kWide = kLanes;
struct Session {
  Session() {}  // not trivial, so that holding one is no unused variable
};
template <GemmKind kKind, bool kTransposed = false>
MS_INLINE void pair_gemm(PairOperand a, PairOperand b, float* c, Index ldc, Index rows, Index cols, Index pairs,
                         const float* scale = nullptr) {
  dot_gemm<kKind, kTransposed>(a, b, c, ldc, rows, cols, pairs, scale);
}
#endif
MS_INLINE constexpr Index whole_deep(Index n) { return ceil_div(n, kDeep) * kDeep; }
MS_INLINE constexpr Index whole_wide(Index n) { return ceil_div(n, kWide) * kWide; }

// Fills rows from `rows` to the next multiple of kDeep with zeros.
template <class T>
MS_INLINE void clear_beyond(T* x, Index ld, Index rows, Index cols) {
  for (Index i = rows; i < whole_deep(rows); ++i) {
    __builtin_memset(x + i * ld, 0, static_cast<std::size_t>(cols) * sizeof(T));
  }
}

constexpr Index kDiagonalKeys = 32;
constexpr Index kVectorPairs = 2 * kLanes;  // bf16 elements of a vector

constexpr Index padded(Index d) { return (d + kVectorPairs - 1) / kVectorPairs * kVectorPairs; }

// The keys of one tile: [c0, c0 + bc), seen by queries from q0 + skip on. Tiles begin at even places among the keys
// that are there.
struct Tile {
  Index c0, bc, skip;
};

// Calls body(Tile, whether it is the first) for the tiles of keys that queries from q0 on see. They are those of the
// whole tile of queries, which begins at a multiple of kQueries.
template <class Body>
MS_INLINE void each_key_tile(const AttentionShape::Keys& keys, Index keys_first, Index q0, Body&& body) {
  const Index base = q0 / kQueries * kQueries, first = keys.begin - (keys.begin - keys_first) % 2;
  for (Index c0 = first, bc = 0; c0 < keys.end; c0 += bc) {
    const Index most_keys = c0 >= base ? kDiagonalKeys : least(kKeys, (base - c0 + 1) / 2 * 2);
    bc = least(most_keys, keys.end - c0);
    body(Tile{c0, bc, c0 > q0 ? (c0 - q0) / kWide * kWide : 0}, c0 == first);
  }
}

// Copies rows of a head without gaps, padded with zeros.
void copy_rows(bfloat16* out, Index ldo, const bfloat16* x, Index ldx, Index rows, Index d) {
  for (Index i = 0; i < rows; ++i) {
    __builtin_memcpy(out + i * ldo, x + i * ldx, static_cast<std::size_t>(d) * 2);
    __builtin_memset(out + i * ldo + d, 0, static_cast<std::size_t>(ldo - d) * 2);
  }
}

// out[d/2][kQueries] = x[rows][d] transposed pair by pair. Columns from `rows` to the next whole vector become 0.
void pair_columns(Pair* out, const bfloat16* x, Index rows, Index d) {
  for (Index r = 0; r < rows; r += kLanes) {
    for (Index k = 0; k < d; k += kVectorPairs) {
      Vf square[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        square[i] = r + i < rows ? load(reinterpret_cast<const float*>(x + (r + i) * d + k)) : Vf{};
      }
      transpose(square);
      for (int i = 0; i < kLanes; ++i) store(reinterpret_cast<float*>(out + (k / 2 + i) * kQueries + r), square[i]);
    }
  }
}

PairOperand rows_of(const bfloat16* x, Index ld) { return {reinterpret_cast<const Pair*>(x), ld / 2}; }

// ---- forward: a task is a tile of queries of one head ----

struct ForwardMemory {
  ForwardMemory(float* memory, Index d) {
    Cutter cut(memory);
    rows = cut.take<bfloat16>(kQueries * d), q_t = cut.take<Pair>(kQueries * d / 2);
    values_p = cut.take<Pair>(kKeys / 2 * d), p = cut.take<Pair>(kKeys / 2 * kQueries);
    scores = cut.take<float>(kKeys * kQueries), o = cut.take<float>(kQueries * d);
  }
  static Index floats(Index d) { return (2 * kQueries + kKeys / 2) * d + 3 * kKeys / 2 * kQueries; }
  bfloat16* rows;  // of q, then of a tile of k
  Pair *q_t, *values_p, *p;
  float *scores, *o;
};

// Turns one tile's scores into probabilities exp(score - maximum), in pairs of keys, and updates top and total.
// `rescale` is the factor that corrects sums made with the old maximum.
template <bool kMasked>
void softmax_tile(float* scores, Pair* p, Index bc, Index skip, Index columns, float scale, RowSums& sums, Mask mask,
                  Index key_minus_query) {
  const Vi lane = lane_index();
  for (Index r = skip; r < columns; r += kLanes) {
    float* column = scores + r;
    const Vf before = load(sums.top + r);
    Vf after = before;
    for (Index c = 0; c < bc; ++c) {
      Vf s = scale * load(column + c * kQueries);
      if constexpr (kMasked) s = mask.sees(lane, key_minus_query + c - r, r) ? s : splat(-__builtin_inff());
      store(column + c * kQueries, s);
      after = max(s, after);
    }
    // Before the first key the maximum is -inf, and any finite shift does.
    const Vf shift = after == -__builtin_inff() ? Vf{} : after;
    const Vf factor = exp2_nonpositive(before - shift);
    Vf even{}, odd{};
    for (Index c = 0; c < bc; c += 2) {
      const Vf p0 = exp2_nonpositive(load(column + c * kQueries) - shift);
      const Vf p1 = c + 1 < bc ? exp2_nonpositive(load(column + (c + 1) * kQueries) - shift) : Vf{};
      store_pairs(p + c / 2 * kQueries + r, pair_up(narrow(p0, p1)));
      even += p0, odd += p1;
    }
    store(sums.top + r, after);
    store(sums.total + r, load(sums.total + r) * factor + (even + odd));
    store(sums.rescale + r, factor);
  }
}

template <class Out>
void forward_tile(const AttentionFwd& op, const AttentionShape& shape, Index b, Index head, Index tile_of_queries,
                  const ForwardMemory& at) {
  const auto [q0, br] = shape.of_tile(tile_of_queries);
  const Index d = padded(shape.d), columns = whole_vectors(br);
  const Index kv_head = head / (shape.heads / shape.kv_heads), row0 = b * shape.keys - shape.keys_first;
  const Index query = q0 - shape.first, query_row = b * shape.queries + query;
  float* lse = row_of<float>(op.lse, b * shape.heads + head) + query;
  const auto row_of_o = [&](Index r) { return const_cast<Out*>(head_rows<Out>(op.o, query_row + r, head, shape.d)); };
  TileStarts starts;
  const Mask mask = mask_of(op, shape.mask, b, q0, br, starts);
  const AttentionShape::Keys keys = shape.of_queries(mask, q0, br);
  if (op.merges && keys.begin >= keys.end) return;
  RowSums sums(op.merges ? lse : nullptr, br);
  const bool sets = !op.merges && keys.begins_for_all(q0);
  if (!sets) __builtin_memset(at.o, 0, static_cast<std::size_t>(kQueries * d) * 4);
  for (Index r = 0; op.merges && r < br; ++r) {
    each_vector(shape.d, [&](Index k, auto lanes) { store(at.o + r * d + k, load(row_of_o(r) + k, lanes)); });
  }
  copy_rows(at.rows, d, head_rows<bfloat16>(op.q, query_row, head, shape.d), op.q.ld, br, shape.d);
  pair_columns(at.q_t, at.rows, br, d);
  const Session session;

  each_key_tile(keys, shape.keys_first, q0, [&](const Tile& tile, bool first) {
    const auto& [c0, bc, skip] = tile;
    copy_rows(at.rows, d, head_rows<bfloat16>(op.v, row0 + c0, kv_head, shape.d), op.v.ld, bc, shape.d);
    const Index rows = br - skip, pairs = (bc + 1) / 2;
    pair_rows(at.values_p, d, at.rows, d, bc, d);
    clear_beyond(at.values_p, d, pairs, d);
    copy_rows(at.rows, d, head_rows<bfloat16>(op.k, row0 + c0, kv_head, shape.d), op.k.ld, bc, shape.d);
    pair_gemm<GemmKind::set>(rows_of(at.rows, d), {at.q_t + skip, kQueries}, at.scores + skip, kQueries, bc,
                             whole_wide(columns - skip), d / 2);
    if (mask.cuts(q0 + skip, br - skip, c0, bc)) {
      softmax_tile<true>(at.scores, at.p, bc, skip, columns, shape.score_scale, sums, mask, c0 - q0);
    } else {
      softmax_tile<false>(at.scores, at.p, bc, skip, columns, shape.score_scale, sums, mask, c0 - q0);
    }
    clear_beyond(at.p + skip, kQueries, pairs, columns - skip);
    const PairOperand p{at.p + skip, kQueries}, v{at.values_p, d};
    if (first && sets) {
      pair_gemm<GemmKind::set, true>(p, v, at.o, d, rows, d, pairs);
    } else {
      pair_gemm<GemmKind::scale_add, true>(p, v, at.o + skip * d, d, rows, d, pairs, sums.rescale + skip);
    }
  });

  for (Index r = 0; r < br; ++r) {
    lse[r] = sums.lse(r);
    add_or_store(row_of_o(r), sums.share(r), at.o + r * d, shape.d, false);
  }
}

// ---- backward: a task is a key/value head, whose gradients it owns, with the query heads that read it ----

struct BackwardMemory {
  BackwardMemory(float* memory, Index held, Index d) {
    Cutter cut(memory);
    const Index rows = whole_rows(held);
    keys = cut.take<bfloat16>(rows * d), values = cut.take<bfloat16>(rows * d), keys_p = cut.take<Pair>(rows / 2 * d);
    dkeys = cut.take<float>(rows * d), dvalues = cut.take<float>(rows * d);
    q = cut.take<bfloat16>(kQueries * d), dout = cut.take<bfloat16>(kQueries * d);
    q_t = cut.take<Pair>(kQueries * d / 2), dout_t = cut.take<Pair>(kQueries * d / 2);
    q_p = cut.take<Pair>(kQueries / 2 * d), dout_p = cut.take<Pair>(kQueries / 2 * d);
    dq = cut.take<float>(kQueries * d);
    scores = cut.take<float>(kKeys * kQueries), dp = cut.take<float>(kKeys * kQueries);
    p = cut.take<bfloat16>(kKeys * kQueries), ds = cut.take<bfloat16>(kKeys * kQueries);
    ds_p = cut.take<Pair>(kKeys / 2 * kQueries);
  }
  static Index floats(Index held, Index d) {
    return (7 * whole_rows(held) / 2 + 4 * kQueries) * d + 7 * kKeys / 2 * kQueries;
  }
  // Tiles begin at even keys.
  static constexpr Index whole_rows(Index held) { return ceil_div(held, 2) * 2 + 2 * (kDeep - 1); }
  bfloat16 *keys, *values;  // [keys][d]
  Pair* keys_p;             // [keys/2][d]
  float *dkeys, *dvalues;   // [keys][d]
  bfloat16 *q, *dout;       // one tile of queries, [kQueries][d]
  Pair *q_t, *dout_t, *q_p, *dout_p;
  float* dq;           // [kQueries][d]
  float *scores, *dp;  // one tile of scores and the gradients of its probabilities, [kKeys][kQueries]
  bfloat16 *p, *ds;    // its probabilities and the gradients of its scores (without the scale), [kKeys][kQueries]
  Pair* ds_p;          // the latter in pairs of keys
};

// Per-query constants of a column of a tile.
struct RowConstants {
  alignas(64) float lse[kQueries], delta[kQueries];
};

template <bool kMasked>
void softmax_gradient_tile(const BackwardMemory& at, const Tile& tile, Index columns, float scale,
                           const RowConstants& constants, Mask mask, Index q0) {
  const Vi lane = lane_index();
  for (Index r = tile.skip; r < columns; r += kLanes) {
    const Vf shift = load(constants.lse + r), offset = load(constants.delta + r);
    const auto probability = [&](Index c) {
      Vf p = exp2_nonpositive(scale * load(at.scores + c * kQueries + r) - shift);
      if constexpr (kMasked) p = mask.sees(lane, tile.c0 - q0 + c - r, r) ? p : Vf{};
      return p;
    };
    const auto gradient = [&](Index c, Vf p) { return p * (load(at.dp + c * kQueries + r) - offset); };
    const auto put_rows = [&](bfloat16* rows, Index c, Vw halves) {
      Vh low, high;
      __builtin_memcpy(&low, &halves, sizeof low);
      __builtin_memcpy(&high, reinterpret_cast<const char*>(&halves) + sizeof low, sizeof high);
      __builtin_memcpy(rows + c * kQueries + r, &low, sizeof low);
      __builtin_memcpy(rows + (c + 1) * kQueries + r, &high, sizeof high);
    };
    for (Index c = 0; c < tile.bc; c += 2) {
      const bool both = c + 1 < tile.bc;
      const Vf p0 = probability(c), p1 = both ? probability(c + 1) : Vf{};
      const Vw ds = narrow(gradient(c, p0), both ? gradient(c + 1, p1) : Vf{});
      put_rows(at.p, c, narrow(p0, p1));
      put_rows(at.ds, c, ds);
      store_pairs(at.ds_p + c / 2 * kQueries + r, pair_up(ds));
    }
  }
}

template <class Out>
void backward_tile(const AttentionBwd& op, const AttentionShape& shape, Index b, Index head, Index tile_of_queries,
                   const BackwardMemory& at) {
  const auto [q0, br] = shape.of_tile(tile_of_queries);
  const Index d = padded(shape.d), columns = whole_vectors(br);
  const Index query = q0 - shape.first, row = b * shape.queries + query, statistics = b * shape.heads + head;
  TileStarts starts;
  const Mask mask = mask_of(op, shape.mask, b, q0, br, starts);
  const AttentionShape::Keys visible = shape.of_queries(mask, q0, br);
  if (op.adds_queries && visible.begin >= visible.end) return;
  copy_rows(at.q, d, head_rows<bfloat16>(op.q, row, head, shape.d), op.q.ld, br, shape.d);
  copy_rows(at.dout, d, head_rows<bfloat16>(op.dout, row, head, shape.d), op.dout.ld, br, shape.d);
  pair_columns(at.q_t, at.q, br, d);
  pair_columns(at.dout_t, at.dout, br, d);
  pair_rows(at.q_p, d, at.q, d, br, d);
  pair_rows(at.dout_p, d, at.dout, d, br, d);
  clear_beyond(at.q_p, d, (br + 1) / 2, d);
  clear_beyond(at.dout_p, d, (br + 1) / 2, d);

  RowConstants constants;
  const bfloat16* o = head_rows<bfloat16>(op.o, row, head, shape.d);
  for (Index r = 0; r < columns; ++r) {
    // A query beyond the end gets probability 0 everywhere.
    constants.lse[r] = r < br ? row_of<float>(op.lse, statistics)[query + r] * kLog2e : __builtin_inff();
    constants.delta[r] = 0;
  }
  for (Index r = 0; r < br; ++r) {
    Vf total{};
    each_vector(shape.d, [&](Index k, auto lanes) {
      total += load(at.dout + r * d + k, lanes) * load(o + r * op.o.ld + k, lanes);
    });
    constants.delta[r] = sum(total);
    row_of<float>(op.delta, statistics)[query + r] = constants.delta[r];
  }

  const bool sets = visible.begins_for_all(q0);
  if (!sets) __builtin_memset(at.dq, 0, static_cast<std::size_t>(kQueries * d) * 4);
  each_key_tile(visible, shape.keys_first, q0, [&](const Tile& tile, bool first) {
    const auto& [c0, bc, skip] = tile;
    const Index across = whole_wide(columns - skip), row0 = c0 - shape.keys_first;
    pair_gemm<GemmKind::set>(rows_of(at.keys + row0 * d, d), {at.q_t + skip, kQueries}, at.scores + skip, kQueries, bc,
                             across, d / 2);
    pair_gemm<GemmKind::set>(rows_of(at.values + row0 * d, d), {at.dout_t + skip, kQueries}, at.dp + skip, kQueries, bc,
                             across, d / 2);
    if (mask.cuts(q0 + skip, br - skip, c0, bc)) {
      softmax_gradient_tile<true>(at, tile, columns, shape.score_scale, constants, mask, q0);
    } else {
      softmax_gradient_tile<false>(at, tile, columns, shape.score_scale, constants, mask, q0);
    }
    const Index rows = br - skip, pairs = (rows + 1) / 2, key_pairs = (bc + 1) / 2;
    for (bfloat16* x : {at.p, at.ds}) {
      clear_beyond(x + skip, kQueries, bc, across);
      if (skip + across == columns) continue;
      for (Index c = 0; c < bc; ++c) {
        __builtin_memset(x + c * kQueries + columns, 0, static_cast<std::size_t>(skip + across - columns) * 2);
      }
    }
    clear_beyond(at.ds_p + skip, kQueries, key_pairs, columns - skip);
    pair_gemm<GemmKind::add>(rows_of(at.p + skip, kQueries), {at.dout_p + skip / 2 * d, d}, at.dvalues + row0 * d, d,
                             bc, d, pairs);
    pair_gemm<GemmKind::add>(rows_of(at.ds + skip, kQueries), {at.q_p + skip / 2 * d, d}, at.dkeys + row0 * d, d, bc, d,
                             pairs);
    const PairOperand ds{at.ds_p + skip, kQueries}, keys{at.keys_p + row0 / 2 * d, d};
    if (first && sets) {
      pair_gemm<GemmKind::set, true>(ds, keys, at.dq, d, rows, d, key_pairs);
    } else {
      pair_gemm<GemmKind::add, true>(ds, keys, at.dq + skip * d, d, rows, d, key_pairs);
    }
  });
  for (Index r = 0; r < br; ++r) {
    auto* dq = const_cast<Out*>(head_rows<Out>(op.dq, row + r, head, shape.d));
    add_or_store(dq, op.scale, at.dq + r * d, shape.d, op.adds_queries);
  }
}

template <class Out>
void backward_head(const AttentionBwd& op, const AttentionShape& shape, Index b, Index kv_head,
                   const BackwardMemory& at) {
  const Index d = padded(shape.d), row0 = b * shape.keys, group = shape.heads / shape.kv_heads;
  copy_rows(at.keys, d, head_rows<bfloat16>(op.k, row0, kv_head, shape.d), op.k.ld, shape.keys, shape.d);
  copy_rows(at.values, d, head_rows<bfloat16>(op.v, row0, kv_head, shape.d), op.v.ld, shape.keys, shape.d);
  pair_rows(at.keys_p, d, at.keys, d, shape.keys, d);
  const Index rows = BackwardMemory::whole_rows(shape.keys), pairs = (shape.keys + 1) / 2;
  __builtin_memset(at.keys_p + pairs * d, 0, static_cast<std::size_t>((rows / 2 - pairs) * d) * sizeof(Pair));
  const std::size_t bytes = static_cast<std::size_t>(rows * d) * 4;
  __builtin_memset(at.dkeys, 0, bytes);
  __builtin_memset(at.dvalues, 0, bytes);
  const Session session;
  for (Index head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (Index tile = 0; tile < shape.query_tiles; ++tile) backward_tile<Out>(op, shape, b, head, tile, at);
  }
  for (Index i = 0; i < shape.keys; ++i) {
    auto* dk = const_cast<Out*>(head_rows<Out>(op.dk, row0 + i, kv_head, shape.d));
    auto* dv = const_cast<Out*>(head_rows<Out>(op.dv, row0 + i, kv_head, shape.d));
    add_or_store(dk, op.scale, at.dkeys + i * d, shape.d, op.adds);
    add_or_store(dv, 1.0F, at.dvalues + i * d, shape.d, op.adds);
  }
}

}  // namespace

void forward_in_pairs(const AttentionFwd& op) {
  const AttentionShape shape(op);
  const Index d = padded(shape.d), floats = ForwardMemory::floats(d);
  const Index tasks = shape.batch * shape.heads * shape.query_tiles;
  const Scratch scratch(floats * team_threads());
  // The longest rows first. Any thread may take any task: tasks share nothing.
  each_task(tasks, shape.work(), [&](Index task, int thread) {
    const Index tile = shape.query_tiles - 1 - task % shape.query_tiles, head = task / shape.query_tiles;
    const ForwardMemory memory(scratch.data() + floats * thread, d);
    with_type(op.o.dtype, [&](auto out) {
      forward_tile<decltype(out)>(op, shape, head / shape.heads, head % shape.heads, tile, memory);
    });
  });
}

void backward_in_pairs(const AttentionBwd& op) {
  const AttentionShape shape(op);
  const Index d = padded(shape.d), floats = BackwardMemory::floats(shape.keys, d);
  const Index tasks = shape.batch * shape.kv_heads;
  const Scratch scratch(floats * least(tasks, team_threads()));
  each_task(tasks, shape.work(), [&](Index task, int thread) {
    const BackwardMemory memory(scratch.data() + floats * thread, shape.keys, d);
    with_type(op.dq.dtype, [&](auto out) {
      backward_head<decltype(out)>(op, shape, task / shape.kv_heads, task % shape.kv_heads, memory);
    });
  });
}

}  // namespace ms::tensor::MS_ISA

#endif
