#include "cost/flops.h"

#include <algorithm>

#include "base/error.h"

namespace ms::cost {
namespace {

constexpr double kTrain = 3.0;  // forward, and twice that backward
constexpr double kMultiplyAdd = 2.0;
constexpr double kAttentionGemms = 2.0;  // the scores, and probabilities times values

}  // namespace

Parameters count_parameters(const ModelShape& shape) {
  const std::int64_t q = shape.heads * shape.head_dim;
  const std::int64_t kv = shape.kv_heads * shape.head_dim;
  const std::int64_t mlp_inputs = shape.gated_mlp ? 2 : 1;  // matrices into the MLP; one leads out
  const std::int64_t norm = shape.hidden * (shape.norm_bias ? 2 : 1);
  Parameters count;
  const std::int64_t mlp = (mlp_inputs + 1) * shape.hidden * shape.ffn;
  const std::int64_t shared = (mlp_inputs + 1) * shape.hidden * shape.shared_ffn;
  const std::int64_t router = (shape.experts + (shape.shared_gate ? 1 : 0)) * shape.hidden;
  const std::int64_t passed = shape.experts == 0 ? 1 : shape.experts_per_token;
  const std::int64_t idle = shape.experts == 0 ? 0 : shape.experts - passed;
  count.gemm_per_layer = shape.hidden * (q + 2 * kv) + q * shape.hidden + router + shared + passed * mlp;
  const std::int64_t biases = (shape.qkv_bias ? q + 2 * kv : 0) + (shape.out_bias ? shape.hidden : 0) +
                              (shape.mlp_bias ? mlp_inputs * shape.ffn + shape.hidden : 0);
  count.per_layer = count.gemm_per_layer + idle * mlp + biases + (shape.parallel_block ? 1 : 2) * norm +
                    (shape.qk_norm ? 2 * shape.head_dim : 0);
  count.embedding = (shape.vocab + (shape.learned_positions ? shape.seq : 0) + shape.patch_numbers) * shape.hidden;
  count.final_norm = norm;
  count.head = shape.tied ? 0 : shape.vocab * shape.hidden;
  // A dense layer's GEMM weights less those that a token passes in a layer with experts; may be negative.
  const std::int64_t more = (mlp_inputs + 1) * shape.hidden * shape.dense_ffn - router - shared - passed * mlp;
  count.total = count.embedding + shape.layers * count.per_layer + shape.dense_layers * (more - idle * mlp) +
                count.final_norm + count.head;
  count.active = count.total - (shape.layers - shape.dense_layers) * idle * mlp;
  count.gemm = shape.layers * count.gemm_per_layer + shape.dense_layers * more + shape.vocab * shape.hidden;
  return count;
}

std::int64_t causal_pairs(std::int64_t queries, std::int64_t window, std::int64_t keys) {
  MS_ASSERT(queries >= 0 && window >= 0 && keys >= 0, "{} queries, window of {}, {} keys", queries, window, keys);
  // Query i has min(i + 1, keys) of the keys up to its own: a triangle, then full rows. Those before its window are
  // those up to the key of an earlier query.
  const auto up_to_own = [keys](std::int64_t n) {
    const std::int64_t rising = std::min(n, keys);
    return rising * (rising + 1) / 2 + (n - rising) * keys;
  };
  return up_to_own(queries) - (window == 0 ? 0 : up_to_own(std::max<std::int64_t>(0, queries - window)));
}

FlopsPerToken flops_per_token(const ModelShape& shape) {
  MS_ASSERT(shape.seq >= 1, "FLOPs of a sequence of {} tokens", shape.seq);
  // For every key that a token sees, in all layers and heads.
  const double per_key =
      kTrain * kMultiplyAdd * kAttentionGemms * static_cast<double>(shape.layers * shape.heads * shape.head_dim);
  const auto seq = static_cast<double>(shape.seq);
  const double reach = shape.window == 0 ? seq : static_cast<double>(std::min(shape.window, shape.seq));
  FlopsPerToken flops;
  flops.gemm = kTrain * kMultiplyAdd * static_cast<double>(count_parameters(shape).gemm);
  flops.causal = flops.gemm + per_key * static_cast<double>(causal_pairs(shape.seq, shape.window)) / seq;
  flops.full = flops.gemm + per_key * seq;
  flops.reported = flops.gemm + per_key * reach;
  return flops;
}

}  // namespace ms::cost
