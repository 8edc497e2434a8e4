#include "tensor/op_cost.h"

#include "cost/flops.h"

namespace ms::tensor {
namespace {

double bytes_of(const Tensor& tensor) { return tensor ? static_cast<double>(tensor.size_bytes()) : 0; }
double rows_bytes(std::int64_t rows, const Tensor& like) {
  return static_cast<double>(rows * like.cols * size_of(like.dtype));
}

// Counts every tensor once.
template <class Row>
OpCost plain(const Row& op) {
  OpCost op_cost{.op_class = Row::kClass};
  op.each([&](Access, const Tensor& tensor) { op_cost.bytes += bytes_of(tensor); });
  return op_cost;
}

// Rounding reads an operand to find its amax, unless that is known, and again to write an fp8 copy at half the bytes.
double rounding_bytes(const Tensor& operand, const Tensor& amax, const Tensor& rounded) {
  return rounded ? 0 : bytes_of(operand) * (amax ? 1.5 : 2.5);
}

OpCost count(const Matmul& op) {
  OpCost op_cost = plain(op);
  if (op.operands != Operands::as_given) {
    op_cost.fp8 = true;
    op_cost.cast_bytes = rounding_bytes(op.a, op.a_amax, op.a_rounded) + rounding_bytes(op.b, op.b_amax, op.b_rounded);
    // The GEMM reads the fp8 numbers only.
    op_cost.bytes += op_cost.cast_bytes - (bytes_of(op.a) + bytes_of(op.b)) / 2;
    op_cost.bytes -= bytes_of(op.a_rounded) + bytes_of(op.b_rounded);
  }
  op_cost.half = op.a.dtype == DType::bf16;
  op_cost.flops = 2.0 * static_cast<double>(op.c.numel()) * static_cast<double>(op.transpose_a ? op.a.rows : op.a.cols);
  if (op.accumulate) op_cost.bytes += bytes_of(op.c) + bytes_of(op.a_sums);
  return op_cost;
}

// Every used slot is multiplied by one expert's matrix, and every expert's is read: as if none had no slots.
OpCost count(const GroupedMatmul& op) {
  OpCost op_cost = plain(op);
  const auto of_slots = [&op](const Tensor& tensor) {
    return bytes_of(op.range.count > 0 ? op.range.rows_of(tensor, op.experts()) : tensor);
  };
  op_cost.bytes -= (1 - op.used) * (of_slots(op.a) + of_slots(op.transpose_a ? op.b : op.c));
  op_cost.gemms = static_cast<double>(op.range.of(op.experts()));
  op_cost.half = op.a.dtype == DType::bf16;
  const Tensor& weights = op.transpose_a ? op.c : op.b;
  op_cost.flops = 2.0 * static_cast<double>(op.slots()) * static_cast<double>(weights.numel() / op.experts()) *
                  op.used * op_cost.gemms / static_cast<double>(op.experts());
  if (op.accumulate) op_cost.bytes += bytes_of(op.c);
  return op_cost;
}

OpCost count(const ExpertSum& op) {
  OpCost op_cost = plain(op);
  op_cost.bytes -= (1 - op.used) * (op_cost.bytes - bytes_of(op.offsets));
  return op_cost;
}

// Reads x for its amax, too, unless that is known.
OpCost count(const RoundToFp8& op) {
  OpCost op_cost = plain(op);
  if (!op.has_amax) op_cost.bytes += bytes_of(op.x);
  if (op.accumulate) op_cost.bytes += bytes_of(op.sums);
  return op_cost;
}

// Counts `matmuls` of s x s x head_dim, as if a sequence were one document: two forward; the backward recomputes the
// scores and has four of its own.
template <class Row>
OpCost attention(const Row& op, double matmuls) {
  OpCost op_cost = plain(op);
  op_cost.half = op.q.dtype == DType::bf16;
  const auto before = [&op](std::int64_t key) {
    return cost::causal_pairs(op.first + op.queries(), op.window, key) - cost::causal_pairs(op.first, op.window, key);
  };
  const std::int64_t seen = before(op.keys_first + op.keys()) - before(op.keys_first);
  const auto pairs = static_cast<double>(seen * op.batch * op.heads);
  op_cost.flops = matmuls * 2.0 * pairs * static_cast<double>(op.head_dim);
  return op_cost;
}
OpCost count(const AttentionFwd& op) {
  OpCost op_cost = attention(op, 2);
  if (op.merges) op_cost.bytes += bytes_of(op.o) + bytes_of(op.lse);
  return op_cost;
}
OpCost count(const AttentionBwd& op) {
  OpCost op_cost = attention(op, 5);
  if (op.adds) op_cost.bytes += bytes_of(op.dk) + bytes_of(op.dv);
  if (op.adds_queries) op_cost.bytes += bytes_of(op.dq);
  return op_cost;
}

OpCost count(const LayerNormBwd& op) {
  OpCost op_cost = plain(op);
  if (op.accumulate) op_cost.bytes += bytes_of(op.dx);
  return op_cost;
}
OpCost count(const RmsNormBwd& op) {
  OpCost op_cost = plain(op);
  if (op.accumulate) op_cost.bytes += bytes_of(op.dx);
  return op_cost;
}

OpCost count(const Rotary& op) {
  OpCost op_cost = plain(op);
  op_cost.bytes += bytes_of(op.x);
  return op_cost;
}

// Tables count only the rows that tokens select.
OpCost count(const EmbeddingFwd& op) {
  return {.op_class = EmbeddingFwd::kClass, .bytes = bytes_of(op.y) + rows_bytes(op.y.rows, op.table)};
}
OpCost count(const EmbeddingBwd& op) {
  return {.op_class = EmbeddingBwd::kClass, .bytes = bytes_of(op.dy) + 2 * rows_bytes(op.dy.rows, op.dtable)};
}
OpCost count(const PositionFwd& op) {
  return {.op_class = PositionFwd::kClass, .bytes = 2 * bytes_of(op.y) + rows_bytes(op.y.rows, op.table)};
}
OpCost count(const PositionBwd& op) {
  return {.op_class = PositionBwd::kClass, .bytes = bytes_of(op.dy) + 2 * rows_bytes(op.dy.rows, op.dtable)};
}
OpCost count(const LossBackward& op) {
  OpCost op_cost = plain(op);
  op_cost.bytes += bytes_of(op.logits);
  return op_cost;
}

OpCost count(const AdamW& op) {
  OpCost op_cost = plain(op);
  op_cost.bytes += bytes_of(op.master ? op.master : op.param) + bytes_of(op.m) + bytes_of(op.v);
  return op_cost;
}
OpCost count(const LambMoments& op) {
  OpCost op_cost = plain(op);
  op_cost.bytes += bytes_of(op.m) + bytes_of(op.v);
  return op_cost;
}
OpCost count(const LambApply& op) {
  OpCost op_cost = plain(op);
  op_cost.bytes += bytes_of(op.master ? op.master : op.param);
  return op_cost;
}

OpCost count(const MuonMomentum& op) {
  OpCost op_cost = plain(op);
  op_cost.bytes += bytes_of(op.m);
  return op_cost;
}
OpCost count(const MuonApply& op) {
  OpCost op_cost = plain(op);
  op_cost.bytes += bytes_of(op.master ? op.master : op.param);
  return op_cost;
}

template <class Row>
OpCost count(const Row& op) {
  return plain(op);
}

}  // namespace

OpCost cost_of(const Op& op) {
  return std::visit([](const auto& row) { return count(row); }, op);
}

}  // namespace ms::tensor
