// The ops of a mixture of experts, a part of the op list (tensor/ops.h, which tells what is common to all).
//
// Legend. T tokens; E experts; k of them for each token; S = T k slots, one for each pair of a token and one of its
// experts. Slots are sorted by expert, then by token; `offsets` tells where those of an expert begin. How many an
// expert has is known only when Route has run, so that shapes do not depend on it.
#pragma once

#include <cstdint>

#include "tensor/expert_slots.h"
#include "tensor/op.h"

namespace ms::tensor {

// Chooses the k experts of each token: those with the highest logits, the highest first, and the lower number first if
// they are equal; NaN counts as the lowest. Scores are softmax(logits), or sigmoid(logits) if `sigmoid`. `weights` are
// the scores of the chosen ones, divided by their sum if `normalized`, times `scale`.
//
// With a bias or with groups, the experts' scores plus the bias decide in place of their logits. Of `groups` equal
// groups of neighboring experts, a token chooses only from the `from_groups` with the highest sums of their two highest
// scores plus bias (DeepSeek-V3, arXiv 2412.19437).
//
// With `count`, only the experts [first, first + count) have slots, which are sorted as if there were no others, and
// offsets has count + 1 elements. Behind the last slot tokens are -1 and weights 0; `slots` are -1 where an expert has
// none. A rank that holds some of the experts computes with those.
inline constexpr std::int64_t kMostGroups = 64;
struct Route {
  MS_OP("route", elementwise)
  Tensor experts;  // i32 [T,k]
  Tensor slots;    // i32 [T,k]: the slot of each of them
  Tensor tokens;   // i32 [1,S]: the token of a slot
  Tensor weights;  // f32 [1,S], by slot
  Tensor offsets;  // i32 [1,E+1]: expert e has the slots [offsets[e], offsets[e+1])
  Tensor logits;   // f32 [T,E]
  bool sigmoid = false, normalized = false;
  float scale = 1.0F;
  std::int64_t first = 0, count = 0;
  Tensor bias = {};  // f32 [1,E]
  std::int64_t groups = 1, from_groups = 1;
  bool chooses_by_score() const { return bias || groups > 1; }
  std::int64_t with_slots() const { return count == 0 ? logits.cols : count; }  // experts
  void each(auto&& f) const {
    f(Access::read, logits), f(Access::read, bias), f(Access::write, experts), f(Access::write, slots);
    f(Access::write, tokens), f(Access::write, weights), f(Access::write, offsets);
  }
};

// counts f32 [n,E]: how many tokens of each n-th part of the T tokens have chosen an expert.
struct ExpertCount {
  MS_OP("expert_count", elementwise)
  Tensor counts, experts;  // experts as Route leaves them
  void each(auto&& f) const { f(Access::read, experts), f(Access::write, counts); }
};

// bias f32 [n,E] += rate * sign(the mean of the row of counts - the count), with counts f64 [n,E] of the tokens that
// chose each expert: those that too few tokens chose rise. factor f32 [1,1] of 0 leaves everything unchanged.
struct ExpertBias {
  MS_OP("expert_bias", optimizer)
  Tensor bias, counts, factor;
  float rate = 0.0F;
  void each(auto&& f) const { f(Access::read, counts), f(Access::read, factor), f(Access::write, bias); }
};

// The gradient of the logits from that of the weights, and from two losses of the router, where p are the scores,
// divided by their sum if they are sigmoids:
//   balance * sum over t and e of p[t,e] counts[part of t, e], with the counts as constants (Switch Transformer, arXiv
//   2101.03961), and z * sum over t of (log of the sum of exp(logits[t]))^2 (ST-MoE, arXiv 2202.08906).
// dlogits [T,E] in f32 or bf16 is overwritten. counts may be absent; the balance is then 0. Where a slot is -1, the
// weight's gradient is 0.
struct RouteBwd {
  MS_OP("route_bwd", elementwise)
  Tensor dlogits, dweights, logits, experts, slots, counts = {};  // dweights f32 [1,S], by slot
  bool sigmoid = false, normalized = false;
  float scale = 1.0F, balance = 0.0F, z = 0.0F;
  void each(auto&& f) const {
    f(Access::read, dweights), f(Access::read, logits), f(Access::read, experts), f(Access::read, slots);
    f(Access::read, counts), f(Access::write, dlogits);
  }
};

// y[S,C] = the row of x[T,C] of each slot's token, zeros where that is -1. Gradient of ExpertCombine.
struct ExpertDispatch {
  MS_OP("expert_dispatch", elementwise)
  Tensor y, x, tokens;
  void each(auto&& f) const { f(Access::read, x), f(Access::read, tokens), f(Access::write, y); }
};

// y[T,C] = the sum of the rows of x[S,C] in a token's slots that are not -1, in the order of `slots` and rounded once.
// Gradient of ExpertDispatch.
struct ExpertCombine {
  MS_OP("expert_combine", elementwise)
  Tensor y, x, slots;
  void each(auto&& f) const { f(Access::read, x), f(Access::read, slots), f(Access::write, y); }
};

// y[R,C] = the sum of the n parts [R,C] of x[n R,C], in their order and rounded once; only of the rows that are used,
// of the experts of a range of those that `rank` holds. `offsets` [ranks,E+1] are those of tensor/expert_slots.h.
struct ExpertSum {
  MS_OP("expert_sum", elementwise)
  Tensor y, x, offsets;
  std::int64_t rank = 0;
  ExpertRange range = {};
  double used = 1;  // the share of the rows that is used if the load is even, for the cost model
  std::int64_t parts() const { return x.rows / y.rows; }
  std::int64_t held() const { return (offsets.cols - 1) / offsets.rows; }
  Tensor part(std::int64_t i) const { return x.slice_rows(i * y.rows, y.rows); }
  // Returns where the rows begin and end. `numbers`: the offsets, where the host can read them.
  std::pair<std::int64_t, std::int64_t> rows(const std::int32_t* numbers) const {
    return ExpertSlots(numbers, offsets.rows, offsets.cols - 1, y.rows).rows_of(rank, range);
  }
  void each(auto&& f) const {
    for (std::int64_t i = 0; i < parts(); ++i) f(Access::read, range.rows_of(part(i), held()));
    f(Access::read, offsets), f(Access::write, range.rows_of(y, held()));
  }
};

// One matmul for each expert, on the rows of its slots. W is E matrices [N,K], one below the other: [E N, K].
//   transpose_b, the forward:   c[S,N] = a[S,K] W[e]^T
//   neither, the input's gradient: c[S,K] = a[S,N] W[e]
//   transpose_a, the weights' gradient: c, like W, (+)= a[S,N]^T b[S,K] over the expert's slots; 0 if it has none
// `offsets` are those of Route; or, where the rows of all ranks' slots are here that belong to the experts of `rank`,
// those of all ranks (tensor/expert_slots.h), where the rows may be those that `members` of a holder gathered.
// Operands and c have one type, but a weight's gradient may be in f32; sums are in f32. A row's bits do not depend on
// the other rows.
struct GroupedMatmul {
  MS_OP("grouped_matmul", matmul)
  Tensor c, a, b, offsets;                                            // offsets [1,E+1], or [members ranks,ranks E + 1]
  bool transpose_a = false, transpose_b = false, accumulate = false;  // accumulate: only with transpose_a
  std::int64_t rank = 0, members = 1;
  ExpertRange range = {};  // of the experts, for a forward or an input's gradient; the others' rows stay as they are
  double used = 1;         // the share of the slots that is used if the load is even, for the cost model
  std::int64_t ranks() const { return offsets.rows / members; }
  std::int64_t experts() const { return (offsets.cols - 1) / ranks(); }
  std::int64_t slots() const { return a.rows; }
  void each(auto&& f) const {
    const bool is_part = range.count > 0;
    f(Access::read, is_part ? range.rows_of(a, experts()) : a),
        f(Access::read, is_part ? range.rows_of(b, experts()) : b);
    f(Access::read, offsets), f(Access::write, is_part ? range.rows_of(c, experts()) : c);
  }
};

}  // namespace ms::tensor
