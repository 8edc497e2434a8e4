// Checks of the ops of a mixture of experts (tensor/expert_ops.h).
#include "tensor/op_rule.h"

namespace ms::tensor {
namespace {

// Checks offsets of tensor/expert_slots.h, those of a multiple of `ranks`.
void check_offsets(const Rule& rule, const Tensor& x, std::int64_t ranks, std::int64_t rank) {
  rule.tensor("offsets", x, x.rows, x.cols, DType::i32);
  MS_ASSERT(x.contiguous() && x.rows % ranks == 0 && (x.cols - 1) % ranks == 0 && rank < ranks,
            "{}: rank {} of {} with offsets {}x{}", rule.op, rank, ranks, x.rows, x.cols);
}

}  // namespace

void check(const Rule& rule, const Route& op) {
  const std::int64_t tokens = op.logits.rows, k = op.experts.cols, experts = op.logits.cols;
  MS_ASSERT(k > 0 && k <= experts, "{}: {} of {} experts", rule.op, k, experts);
  rule.type("logits", op.logits, {DType::f32});
  rule.tensor("experts", op.experts, tokens, k, DType::i32);
  rule.like("slots", op.slots, op.experts);
  MS_ASSERT(op.experts.contiguous() && op.slots.contiguous(), "{}: gaps between rows", rule.op);
  rule.tensor("tokens", op.tokens, 1, tokens * k, DType::i32);
  rule.tensor("weights", op.weights, 1, tokens * k, DType::f32);
  rule.tensor("offsets", op.offsets, 1, op.with_slots() + 1, DType::i32);
  MS_ASSERT(op.first >= 0 && op.count >= 0 && op.first + op.count <= experts, "{}: experts {}+{} of {}", rule.op,
            op.first, op.count, experts);
  if (op.bias) rule.tensor("bias", op.bias, 1, experts, DType::f32);
  MS_ASSERT(op.groups > 0 && op.groups <= kMostGroups && experts % op.groups == 0 && op.from_groups > 0 &&
                op.from_groups <= op.groups && experts / op.groups * op.from_groups >= k,
            "{}: {} experts of {} in {} of {} groups", rule.op, k, experts, op.from_groups, op.groups);
}

void check(const Rule& rule, const ExpertBias& op) {
  rule.type("bias", op.bias, {DType::f32});
  rule.tensor("counts", op.counts, op.bias.rows, op.bias.cols, DType::f64);
  MS_ASSERT(op.counts.contiguous(), "{}: gaps between rows", rule.op);
  rule.tensor("factor", op.factor, 1, 1, DType::f32);
}

void check(const Rule& rule, const RouteBwd& op) {
  const std::int64_t tokens = op.logits.rows;
  rule.type("logits", op.logits, {DType::f32});
  rule.accumulator("dlogits", op.dlogits, tokens, op.logits.cols);
  rule.tensor("experts", op.experts, tokens, op.experts.cols, DType::i32);
  rule.like("slots", op.slots, op.experts);
  rule.tensor("dweights", op.dweights, 1, std::max(op.dweights.cols, op.experts.numel()), DType::f32);
  if (!op.counts) return MS_ASSERT(op.balance == 0.0F, "{}: a balance without counts", rule.op);
  rule.tensor("counts", op.counts, op.counts.rows, op.logits.cols, DType::f32);
  MS_ASSERT(op.counts.rows > 0 && tokens % op.counts.rows == 0, "{}: {} tokens in {} parts", rule.op, tokens,
            op.counts.rows);
}

void check(const Rule& rule, const ExpertCount& op) {
  rule.type("experts", op.experts, {DType::i32});
  rule.type("counts", op.counts, {DType::f32});
  MS_ASSERT(op.counts.rows > 0 && op.experts.rows % op.counts.rows == 0, "{}: {} tokens in {} parts", rule.op,
            op.experts.rows, op.counts.rows);
}

void check(const Rule& rule, const ExpertDispatch& op) {
  rule.activation("x", op.x);
  rule.tensor("y", op.y, op.tokens.cols, op.x.cols, op.x.dtype);
  rule.type("tokens", op.tokens, {DType::i32});
}

void check(const Rule& rule, const ExpertCombine& op) {
  rule.activation("x", op.x);
  rule.tensor("y", op.y, op.slots.rows, op.x.cols, op.x.dtype);
  rule.tensor("slots", op.slots, op.y.rows, op.x.rows / std::max<std::int64_t>(op.y.rows, 1), DType::i32);
}

void check(const Rule& rule, const ExpertSum& op) {
  rule.activation("y", op.y);
  rule.tensor("x", op.x, op.parts() * op.y.rows, op.y.cols, op.y.dtype);
  MS_ASSERT(op.x.contiguous() && op.y.contiguous(), "{}: gaps between rows", rule.op);
  check_offsets(rule, op.offsets, op.offsets.rows, op.rank);
}

void check(const Rule& rule, const GroupedMatmul& op) {
  const std::int64_t experts = op.experts();
  MS_ASSERT(experts > 0 && !(op.transpose_a && op.transpose_b) && (op.transpose_a || !op.accumulate),
            "{}: {} experts in a form that there is not", rule.op, experts);
  const Tensor &weights = op.transpose_a ? op.c : op.b, &n = op.transpose_b ? op.c : op.a,
               &k = op.transpose_a   ? op.b
                    : op.transpose_b ? op.a
                                     : op.c;
  rule.activation("a", op.a);
  rule.tensor("b", op.b, op.b.rows, op.b.cols, op.a.dtype);
  rule.type("c", op.c, {op.transpose_a ? DType::f32 : op.a.dtype, op.a.dtype});
  rule.shape("weights", weights, experts * n.cols, k.cols);
  MS_ASSERT(n.rows == k.rows, "{}: {} and {} slots", rule.op, n.rows, k.rows);
  check_offsets(rule, op.offsets, op.ranks(), op.rank);
  MS_ASSERT(op.slots() % op.members == 0 && (op.range.count == 0 || !op.transpose_a),
            "{}: {} slots of {} members, or a weight's gradient of some experts", rule.op, op.slots(), op.members);
}

}  // namespace ms::tensor
