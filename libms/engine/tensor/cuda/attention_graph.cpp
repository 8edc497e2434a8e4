#include "tensor/cuda/attention_graph.h"

namespace ms::tensor {
namespace {

using Id = CudnnGraph::Id;

// Returns the shape of heads in rows that are ordered by batch, then position.
CudnnShape heads_of(const AttentionKey& key, std::int64_t heads, std::int64_t ld) {
  return {.dims = {key.batch, heads, key.seq, key.head_dim}, .strides = {key.seq * ld, key.head_dim, ld, 1}};
}
CudnnShape transposed(CudnnShape shape) {
  std::swap(shape.dims[2], shape.dims[3]);
  std::swap(shape.strides[2], shape.strides[3]);
  return shape;
}
CudnnShape scores_of(const AttentionKey& key) { return contiguous({key.batch, key.heads, key.seq, key.seq}); }
CudnnShape rows_of(const AttentionKey& key) { return contiguous({key.batch, key.heads, key.seq, 1}); }

Id add_starts(CudnnGraph& graph, const AttentionKey& key) {
  return key.documents ? graph.tensor(contiguous({key.batch, 1, key.seq, 1}), CUDNN_DATA_INT32) : 0;
}

// Sets scores of keys after the query, before its window or before its document to minus infinity. Each mask has
// indices of its own, as those of cuDNN's C++ interface do.
Id masked(CudnnGraph& graph, const AttentionKey& key, Id scores, Id minus_infinity, Id window, Id starts) {
  const CudnnShape shape = scores_of(key);
  const auto index = [&](std::int64_t axis) {
    const Id result = graph.between(shape, CUDNN_DATA_INT32);
    graph.index(scores, axis, result);
    return result;
  };
  const auto keep_where = [&](cudnnPointwiseMode_t comparison, Id left, Id right) {
    const Id condition = graph.between(shape, CUDNN_DATA_BOOLEAN), result = graph.between(shape, CUDNN_DATA_FLOAT);
    graph.pointwise(comparison, left, right, condition);
    graph.select(scores, minus_infinity, condition, result);
    scores = result;
  };
  const Id row = index(2), col = index(3);
  keep_where(CUDNN_POINTWISE_CMP_GE, row, col);
  if (key.window > 0) {
    const Id row_again = index(2), col_again = index(3), edge = graph.between(shape, CUDNN_DATA_FLOAT);
    graph.pointwise(CUDNN_POINTWISE_ADD, col_again, window, edge);
    keep_where(CUDNN_POINTWISE_CMP_GT, edge, row_again);
  }
  if (key.documents) keep_where(CUDNN_POINTWISE_CMP_GE, index(3), starts);
  return scores;
}

}  // namespace

AttentionForward::AttentionForward(const AttentionKey& key) {
  const CudnnShape scores = scores_of(key), rows = rows_of(key);
  q = graph.tensor(heads_of(key, key.heads, key.q_ld), CUDNN_DATA_BFLOAT16);
  k = graph.tensor(transposed(heads_of(key, key.kv_heads, key.k_ld)), CUDNN_DATA_BFLOAT16);
  v = graph.tensor(heads_of(key, key.kv_heads, key.v_ld), CUDNN_DATA_BFLOAT16);
  o = graph.tensor(heads_of(key, key.heads, key.o_ld), CUDNN_DATA_BFLOAT16);
  lse = graph.tensor(rows, CUDNN_DATA_FLOAT);
  scale = graph.scalar();
  minus_infinity = graph.scalar();
  if (key.window > 0) window = graph.scalar();
  starts = add_starts(graph, key);

  const Id qk = graph.between(scores, CUDNN_DATA_FLOAT), scaled = graph.between(scores, CUDNN_DATA_FLOAT);
  graph.matmul(q, k, qk);
  graph.pointwise(CUDNN_POINTWISE_MUL, qk, scale, scaled);
  const Id seen = masked(graph, key, scaled, minus_infinity, window, starts);
  const Id peak = graph.between(rows, CUDNN_DATA_FLOAT), below = graph.between(scores, CUDNN_DATA_FLOAT),
           weight = graph.between(scores, CUDNN_DATA_FLOAT), sum = graph.between(rows, CUDNN_DATA_FLOAT),
           log_sum = graph.between(rows, CUDNN_DATA_FLOAT), p = graph.between(scores, CUDNN_DATA_BFLOAT16);
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, seen, peak);
  graph.pointwise(CUDNN_POINTWISE_SUB, seen, peak, below);
  graph.pointwise(CUDNN_POINTWISE_EXP, below, weight);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, weight, sum);
  graph.pointwise(CUDNN_POINTWISE_LOG, sum, log_sum);
  graph.pointwise(CUDNN_POINTWISE_ADD, peak, log_sum, lse);
  graph.pointwise(CUDNN_POINTWISE_DIV, weight, sum, p);
  graph.matmul(p, v, o);
}

AttentionBackward::AttentionBackward(const AttentionKey& key) {
  const CudnnShape scores = scores_of(key), rows = rows_of(key);
  const CudnnShape of_q = heads_of(key, key.heads, key.q_ld), of_k = heads_of(key, key.kv_heads, key.k_ld);
  const CudnnShape full = contiguous({key.batch, key.heads, key.seq, key.head_dim});
  const CudnnShape of_dk = heads_of(key, key.kv_heads, key.dk_ld), of_dv = heads_of(key, key.kv_heads, key.dv_ld);
  q = graph.tensor(of_q, CUDNN_DATA_BFLOAT16);
  k = graph.tensor(transposed(of_k), CUDNN_DATA_BFLOAT16);
  v = graph.tensor(transposed(heads_of(key, key.kv_heads, key.v_ld)), CUDNN_DATA_BFLOAT16);
  o = graph.tensor(heads_of(key, key.heads, key.o_ld), CUDNN_DATA_BFLOAT16);
  dout = graph.tensor(heads_of(key, key.heads, key.dout_ld), CUDNN_DATA_BFLOAT16);
  lse = graph.tensor(rows, CUDNN_DATA_FLOAT);
  delta = graph.tensor(rows, CUDNN_DATA_FLOAT);
  dq = graph.tensor(heads_of(key, key.heads, key.dq_ld), CUDNN_DATA_BFLOAT16);
  dk = graph.tensor(of_dk, CUDNN_DATA_BFLOAT16);
  dv = graph.tensor(of_dv, CUDNN_DATA_BFLOAT16);
  scale = graph.scalar();
  one = graph.scalar();
  minus_infinity = graph.scalar();
  if (key.window > 0) window = graph.scalar();
  starts = add_starts(graph, key);
  const auto score = [&] { return graph.between(scores, CUDNN_DATA_FLOAT); };

  // delta = the sum over a row of dout o
  const Id dout_o = graph.between(full, CUDNN_DATA_FLOAT), sums = graph.between(rows, CUDNN_DATA_FLOAT);
  graph.pointwise(CUDNN_POINTWISE_MUL, dout, o, dout_o);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, dout_o, sums);
  graph.pointwise(CUDNN_POINTWISE_MUL, sums, one, delta);

  // p = exp(scale q k - lse)
  const Id qk = score(), scaled = score(), below = score(), p = score();
  graph.matmul(q, k, qk);
  graph.pointwise(CUDNN_POINTWISE_MUL, qk, scale, scaled);
  graph.pointwise(CUDNN_POINTWISE_SUB, scaled, lse, below);
  graph.pointwise(CUDNN_POINTWISE_EXP, masked(graph, key, below, minus_infinity, window, starts), p);

  // The gradient of keys or values: first per query head, if several share one.
  const bool shared = key.heads != key.kv_heads;
  const auto of_shared = [&](Id left, Id right, Id result) {
    if (!shared) return graph.matmul(left, right, result);
    const Id each = graph.between(full, CUDNN_DATA_BFLOAT16);
    graph.matmul(left, right, each);
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, each, result);
  };
  const Id p_turned = graph.between(transposed(scores), CUDNN_DATA_BFLOAT16);
  graph.reshape(p, p_turned);
  of_shared(p_turned, dout, dv);

  // ds = scale p (dout v - delta)
  const Id dp = score(), centred = score(), weighed = score(), ds = graph.between(scores, CUDNN_DATA_BFLOAT16);
  graph.matmul(dout, v, dp);
  graph.pointwise(CUDNN_POINTWISE_SUB, dp, delta, centred);
  graph.pointwise(CUDNN_POINTWISE_MUL, centred, p, weighed);
  graph.pointwise(CUDNN_POINTWISE_MUL, weighed, scale, ds);
  const Id ds_turned = graph.between(transposed(scores), CUDNN_DATA_BFLOAT16);
  graph.reshape(ds, ds_turned);
  of_shared(ds_turned, q, dk);

  const Id k_turned = graph.between(of_k, CUDNN_DATA_BFLOAT16);
  graph.reshape(k, k_turned);
  if (key.deterministic) {
    graph.matmul(ds, k_turned, dq);
  } else {
    dq_sum = graph.tensor(full, CUDNN_DATA_FLOAT);
    graph.matmul(ds, k_turned, dq_sum);
    graph.pointwise(CUDNN_POINTWISE_IDENTITY, dq_sum, dq);
  }
}

}  // namespace ms::tensor
