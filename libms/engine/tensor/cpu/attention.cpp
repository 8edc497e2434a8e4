// Causal attention without the s x s matrix. Both directions iterate over tiles of kQueries x kKeys scores and keep the
// scores transposed, keys down and queries across. The softmax then runs down the columns, whole vectors of queries at
// a time; keys and values are read in their own layout, and only the query side is transposed, once per tile of
// queries.
//
// Legend. q0, c0: first query, first key of a tile; br queries, bc keys, d the head's size; *_t is transposed,
// [d][kQueries]. Scores are kept times log2(e), so that a probability is a power of two.
#include "tensor/cpu/attention.h"
#include "tensor/cpu/gemm.h"

namespace ms::tensor::MS_ISA {
namespace {

// Rows [0, rows) of a head, as f32 without gaps.
template <class T>
void copy_rows(float* out, Index ldo, const T* x, Index ldx, Index rows, Index d) {
  for (Index i = 0; i < rows; ++i) {
    each_vector(d, [&](Index k, auto lanes) { store(out + i * ldo + k, load(x + i * ldx + k, lanes)); });
  }
}

// out[d][kQueries] = scale * x[rows][d] transposed. Columns from `rows` to the next whole vector become 0. `out` has
// rows for whole vectors of d.
template <class T>
void load_transposed(float* out, const T* x, Index ldx, Index rows, Index d, float scale) {
  for (Index r = 0; r < rows; r += kLanes) {
    each_vector(d, [&](Index k, auto lanes) {
      Vf square[kLanes];
      for (int i = 0; i < kLanes; ++i) square[i] = r + i < rows ? scale * load(x + (r + i) * ldx + k, lanes) : Vf{};
      transpose(square);
      for (int i = 0; i < kLanes; ++i) store(out + (k + i) * kQueries + r, square[i]);
    });
  }
}

// x[rows][d] = (in[d][kQueries] * factor[query]) transposed, or that is added.
template <class T>
void store_transposed(T* x, Index ldx, const float* in, const float* factor, Index rows, Index d, bool adds) {
  for (Index r = 0; r < rows; r += kLanes) {
    const Vf f = load(factor + r);
    each_vector(d, [&](Index k, auto lanes) {
      Vf square[kLanes];
      for (int i = 0; i < kLanes; ++i) square[i] = load(in + (k + i) * kQueries + r) * f;
      transpose(square);
      for (int i = 0; i < kLanes; ++i) {
        if (r + i >= rows) continue;
        T* to = x + (r + i) * ldx + k;
        store(to, adds ? load(to, lanes) + square[i] : square[i], lanes);
      }
    });
  }
}

// Turns one tile's scores (times log2 e) into exp(score - maximum) and updates top and total. `rescale` is the factor
// that corrects sums made with the old maximum.
template <bool kMasked>
void softmax_tile(float* scores_t, Index bc, Index columns, float* top, float* total, float* rescale, Mask mask,
                  Index key_minus_query) {
  const Vi lane = lane_index();
  for (Index r = 0; r < columns; r += kLanes) {
    float* column = scores_t + r;
    const Vf before = load(top + r);
    Vf after = before;
    for (Index c = 0; c < bc; ++c) {
      Vf s = load(column + c * kQueries);
      if constexpr (kMasked) {
        s = mask.sees(lane, key_minus_query + c - r, r) ? s : splat(-__builtin_inff());
        store(column + c * kQueries, s);
      }
      after = max(s, after);
    }
    // Before the first key the maximum is -inf, and any finite shift does.
    const Vf shift = after == -__builtin_inff() ? Vf{} : after;
    const Vf scale = exp2_nonpositive(before - shift);
    Vf sums{};
    for (Index c = 0; c < bc; ++c) {
      const Vf p = exp2_nonpositive(load(column + c * kQueries) - shift);
      store(column + c * kQueries, p);
      sums += p;
    }
    store(top + r, after);
    store(total + r, load(total + r) * scale + sums);
    store(rescale + r, scale);
  }
}

// ---- forward: a task is a tile of queries of one head ----

template <class T, class Out>
void forward_tile(const AttentionFwd& op, const AttentionShape& shape, Index b, Index head, Index tile, float* memory) {
  const auto [q0, br] = shape.of_tile(tile);
  const Index d = shape.d, columns = whole_vectors(br);
  const Index kv_head = head / (shape.heads / shape.kv_heads), row0 = b * shape.keys - shape.keys_first;
  const Index query = q0 - shape.first, query_row = b * shape.queries + query;
  float* q_t = memory;
  float* o_t = q_t + shape.d_padded * kQueries;
  float* scores_t = o_t + shape.d_padded * kQueries;
  float* keys = scores_t + kKeys * kQueries;
  float* values = keys + kKeys * shape.d_padded;
  Out* o = const_cast<Out*>(head_rows<Out>(op.o, query_row, head, d));
  float* lse = row_of<float>(op.lse, b * shape.heads + head) + query;
  TileStarts starts;
  const Mask mask = mask_of(op, shape.mask, b, q0, br, starts);
  const auto [first, end] = shape.of_queries(mask, q0, br);
  if (op.merges && first >= end) return;
  RowSums sums(op.merges ? lse : nullptr, br);
  auto& [top, total, rescale] = sums;
  if (op.merges) {
    load_transposed(o_t, o, op.o.ld, br, d, 1.0F);
  } else if (first >= end) {
    __builtin_memset(o_t, 0, static_cast<std::size_t>(shape.d_padded * kQueries) * 4);
  }
  load_transposed(q_t, head_rows<T>(op.q, query_row, head, d), op.q.ld, br, d, shape.score_scale);

  for (Index c0 = first; c0 < end; c0 += kKeys) {
    const Index bc = least(kKeys, end - c0);
    copy_rows(keys, shape.d_padded, head_rows<T>(op.k, row0 + c0, kv_head, d), op.k.ld, bc, d);
    copy_rows(values, shape.d_padded, head_rows<T>(op.v, row0 + c0, kv_head, d), op.v.ld, bc, d);
    gemm<GemmKind::set>({keys, shape.d_padded}, {q_t, kQueries}, scores_t, kQueries, bc, columns, d);
    if (mask.cuts(q0, br, c0, bc)) {
      softmax_tile<true>(scores_t, bc, columns, top, total, rescale, mask, c0 - q0);
    } else {
      softmax_tile<false>(scores_t, bc, columns, top, total, rescale, mask, c0 - q0);
    }
    const Operand v{values, shape.d_padded}, p{scores_t, kQueries};
    if (c0 == first && !op.merges) {
      gemm<GemmKind::set, true>(v, p, o_t, kQueries, d, columns, bc);
    } else {
      gemm<GemmKind::scale_add, true>(v, p, o_t, kQueries, d, columns, bc, rescale);
    }
  }

  for (Index r = 0; r < br; ++r) lse[r] = sums.lse(r);
  for (Index r = 0; r < columns; ++r) rescale[r] = sums.share(r);
  store_transposed(o, op.o.ld, o_t, rescale, br, d, false);
}

template <class T, class Out>
void forward(const AttentionFwd& op) {
  const AttentionShape shape(op);
  const Index floats = (2 * kQueries + 2 * kKeys) * shape.d_padded + kKeys * kQueries;
  const Index tasks = shape.batch * shape.heads * shape.query_tiles;
  const Scratch scratch(floats * team_threads());
  // The longest rows first. Any thread may take any task: tasks share nothing.
  each_task(tasks, shape.work(), [&](Index task, int thread) {
    const Index tile = shape.query_tiles - 1 - task % shape.query_tiles, head = task / shape.query_tiles;
    forward_tile<T, Out>(op, shape, head / shape.heads, head % shape.heads, tile, scratch.data() + floats * thread);
  });
}

// ---- backward: a task is a key/value head, whose gradients it owns, with the query heads that read it ----

// The working memory of a task, carved from one block.
struct BackwardMemory {
  BackwardMemory(float* memory, const AttentionShape& shape) {
    const auto take = [&memory](Index floats) {
      float* begin = memory;
      memory += floats;
      return begin;
    };
    keys = take(shape.keys * shape.d_padded), values = take(shape.keys * shape.d_padded);
    dkeys = take(shape.keys * shape.d_padded), dvalues = take(shape.keys * shape.d_padded);
    q_t = take(kQueries * shape.d_padded), dout_t = take(kQueries * shape.d_padded);
    q = take(kQueries * shape.d_padded), dout = take(kQueries * shape.d_padded);
    dq_t = take(kQueries * shape.d_padded);
    p_t = take(kKeys * kQueries), ds_t = take(kKeys * kQueries);
  }
  static Index floats(const AttentionShape& shape) {
    return (4 * shape.keys + 5 * kQueries) * shape.d_padded + 2 * kKeys * kQueries;
  }
  float *keys, *values, *dkeys, *dvalues;  // [keys][d_padded]
  float *q_t, *dout_t, *q, *dout, *dq_t;   // one tile of queries
  float *p_t, *ds_t;                       // one tile of scores
};

// Turns the scores in p_t into probabilities, and the gradients of probabilities in ds_t into gradients of scores
// (without the scale).
template <bool kMasked>
void softmax_gradient_tile(float* p_t, float* ds_t, Index bc, Index columns, const float* lse, const float* delta,
                           Mask mask, Index key_minus_query) {
  const Vi lane = lane_index();
  for (Index r = 0; r < columns; r += kLanes) {
    const Vf shift = load(lse + r), offset = load(delta + r);
    for (Index c = 0; c < bc; ++c) {
      Vf p = exp2_nonpositive(load(p_t + c * kQueries + r) - shift);
      if constexpr (kMasked) p = mask.sees(lane, key_minus_query + c - r, r) ? p : Vf{};
      store(p_t + c * kQueries + r, p);
      store(ds_t + c * kQueries + r, p * (load(ds_t + c * kQueries + r) - offset));
    }
  }
}

template <class T, class Out>
void backward_tile(const AttentionBwd& op, const AttentionShape& shape, Index b, Index head, Index tile,
                   const BackwardMemory& at) {
  const auto [q0, br] = shape.of_tile(tile);
  const Index d = shape.d, dp = shape.d_padded, columns = whole_vectors(br);
  const Index query = q0 - shape.first, row = b * shape.queries + query, statistics = b * shape.heads + head;
  TileStarts starts;
  const Mask mask = mask_of(op, shape.mask, b, q0, br, starts);
  const auto [first, end] = shape.of_queries(mask, q0, br);
  if (op.adds_queries && first >= end) return;
  const T* q = head_rows<T>(op.q, row, head, d);
  const T* dout = head_rows<T>(op.dout, row, head, d);
  const T* o = head_rows<T>(op.o, row, head, d);
  load_transposed(at.q_t, q, op.q.ld, br, d, shape.score_scale);
  load_transposed(at.dout_t, dout, op.dout.ld, br, d, 1.0F);
  copy_rows(at.q, dp, q, op.q.ld, br, d);
  copy_rows(at.dout, dp, dout, op.dout.ld, br, d);

  alignas(64) float lse[kQueries], delta[kQueries], scale[kQueries];
  for (Index r = 0; r < columns; ++r) {
    // A query beyond the end gets probability 0 everywhere.
    lse[r] = r < br ? row_of<float>(op.lse, statistics)[query + r] * kLog2e : __builtin_inff();
    delta[r] = 0;
    scale[r] = op.scale;
  }
  for (Index r = 0; r < br; ++r) {
    Vf total{};
    each_vector(d, [&](Index k, auto lanes) {
      total += load(dout + r * op.dout.ld + k, lanes) * load(o + r * op.o.ld + k, lanes);
    });
    delta[r] = sum(total);
    row_of<float>(op.delta, statistics)[query + r] = delta[r];
  }

  if (first >= end) __builtin_memset(at.dq_t, 0, static_cast<std::size_t>(dp * kQueries) * 4);
  for (Index c0 = first; c0 < end; c0 += kKeys) {
    const Index bc = least(kKeys, end - c0), row0 = c0 - shape.keys_first;
    const Operand keys{at.keys + row0 * dp, dp}, values{at.values + row0 * dp, dp};
    const Operand p{at.p_t, kQueries}, ds{at.ds_t, kQueries};
    gemm<GemmKind::set>(keys, {at.q_t, kQueries}, at.p_t, kQueries, bc, columns, d);
    gemm<GemmKind::set>(values, {at.dout_t, kQueries}, at.ds_t, kQueries, bc, columns, d);
    if (mask.cuts(q0, br, c0, bc)) {
      softmax_gradient_tile<true>(at.p_t, at.ds_t, bc, columns, lse, delta, mask, c0 - q0);
    } else {
      softmax_gradient_tile<false>(at.p_t, at.ds_t, bc, columns, lse, delta, mask, c0 - q0);
    }
    gemm<GemmKind::add>(p, {at.dout, dp}, at.dvalues + row0 * dp, dp, bc, dp, br);
    gemm<GemmKind::add>(ds, {at.q, dp}, at.dkeys + row0 * dp, dp, bc, dp, br);
    if (c0 == first) {
      gemm<GemmKind::set, true>(keys, ds, at.dq_t, kQueries, d, columns, bc);
    } else {
      gemm<GemmKind::add, true>(keys, ds, at.dq_t, kQueries, d, columns, bc);
    }
  }
  Out* dq = const_cast<Out*>(head_rows<Out>(op.dq, row, head, d));
  store_transposed(dq, op.dq.ld, at.dq_t, scale, br, d, op.adds_queries);
}

template <class T, class Out>
void backward_head(const AttentionBwd& op, const AttentionShape& shape, Index b, Index kv_head,
                   const BackwardMemory& at) {
  const Index d = shape.d, dp = shape.d_padded, row0 = b * shape.keys, group = shape.heads / shape.kv_heads;
  copy_rows(at.keys, dp, head_rows<T>(op.k, row0, kv_head, d), op.k.ld, shape.keys, d);
  copy_rows(at.values, dp, head_rows<T>(op.v, row0, kv_head, d), op.v.ld, shape.keys, d);
  __builtin_memset(at.dkeys, 0, static_cast<std::size_t>(2 * shape.keys * dp) * 4);  // dvalues follow
  for (Index head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (Index tile = 0; tile < shape.query_tiles; ++tile) backward_tile<T, Out>(op, shape, b, head, tile, at);
  }
  for (Index i = 0; i < shape.keys; ++i) {
    Out* dk = const_cast<Out*>(head_rows<Out>(op.dk, row0 + i, kv_head, d));
    Out* dv = const_cast<Out*>(head_rows<Out>(op.dv, row0 + i, kv_head, d));
    add_or_store(dk, op.scale, at.dkeys + i * dp, d, op.adds);
    add_or_store(dv, 1.0F, at.dvalues + i * dp, d, op.adds);
  }
}

template <class T, class Out>
void backward(const AttentionBwd& op) {
  const AttentionShape shape(op);
  const Index tasks = shape.batch * shape.kv_heads, floats = BackwardMemory::floats(shape);
  const Scratch scratch(floats * least(tasks, team_threads()));
  each_task(tasks, shape.work(), [&](Index task, int thread) {
    const BackwardMemory memory(scratch.data() + floats * thread, shape);
    backward_head<T, Out>(op, shape, task / shape.kv_heads, task % shape.kv_heads, memory);
  });
}

}  // namespace

#if defined(__AVX512BF16__)
void run(const AttentionFwd& op) { op.q.dtype == DType::bf16 ? forward_in_pairs(op) : forward<float, float>(op); }
void run(const AttentionBwd& op) { op.q.dtype == DType::bf16 ? backward_in_pairs(op) : backward<float, float>(op); }
#else
void run(const AttentionFwd& op) {
  if (op.q.dtype == DType::f32) return forward<float, float>(op);
  with_type(op.o.dtype, [&](auto out) { forward<bfloat16, decltype(out)>(op); });
}
void run(const AttentionBwd& op) {
  if (op.q.dtype == DType::f32) return backward<float, float>(op);
  with_type(op.dq.dtype, [&](auto out) { backward<bfloat16, decltype(out)>(op); });
}
#endif

}  // namespace ms::tensor::MS_ISA
