#include "tensor/op_checks.h"

#include "tensor/op_rule.h"

namespace ms::tensor {
namespace {

void check_residual(const Rule& rule, const Residual& residual, const Tensor& x) {
  if (!residual) return;
  rule.like("residual.a", residual.a, x);
  rule.like("residual.b", residual.b, x);
  if (residual.bias) rule.tensor("residual.bias", residual.bias, 1, x.cols, x.dtype);
}

// Checks a norm; its vectors run over rows or columns.
void check_norm(const Rule& rule, const Tensor& x, const Tensor& y, const Tensor& rstd, const Tensor& gain,
                std::int64_t heads = 1) {
  MS_ASSERT(heads > 0 && x.cols % heads == 0, "{}: {} heads in {} columns", rule.op, heads, x.cols);
  rule.activation("x", x);
  rule.like("y", y, x);
  rule.tensor("rstd", rstd, 1, x.rows * heads, DType::f32);
  rule.tensor("gain", gain, 1, x.cols / heads, x.dtype);
}

template <class Attention>
void check_attention(const Rule& rule, const Attention& op) {
  MS_ASSERT(op.kv_heads > 0 && op.heads % op.kv_heads == 0, "{}: {} heads over {} key heads", rule.op, op.heads,
            op.kv_heads);
  MS_ASSERT(op.head_dim > 0 && op.batch > 0 && op.seq > 0 && op.window >= 0, "{}: batch {} seq {} head {} window {}",
            rule.op, op.batch, op.seq, op.head_dim, op.window);
  const std::int64_t queries = op.queries(), keys = op.keys();
  MS_ASSERT(op.first >= 0 && op.first + queries <= op.seq, "{}: queries {}+{} of {}", rule.op, op.first, queries,
            op.seq);
  MS_ASSERT(op.keys_first >= 0 && op.keys_first + keys <= op.seq, "{}: keys {}+{} of {}", rule.op, op.keys_first, keys,
            op.seq);
  rule.activation("q", op.q);
  rule.tensor("q", op.q, op.batch * queries, op.heads * op.head_dim, op.q.dtype);
  rule.tensor("k", op.k, op.batch * keys, op.kv_heads * op.head_dim, op.q.dtype);
  rule.like("v", op.v, op.k);
  rule.tensor("lse", op.lse, op.batch * op.heads, queries, DType::f32);
  if (op.starts) rule.tensor("starts", op.starts, 1, op.batch * op.seq, DType::i32);
}

void check(const Rule& rule, const Matmul& op) {
  const std::int64_t k = op.transpose_a ? op.a.rows : op.a.cols;
  MS_ASSERT(k > 0, "{}: K is 0", rule.op);
  rule.activation("a", op.a);
  rule.type("c", op.c, {DType::f32, op.a.dtype});
  rule.shape("a", op.a, op.transpose_a ? k : op.c.rows, op.transpose_a ? op.c.rows : k);
  rule.tensor("b", op.b, op.transpose_b ? op.c.cols : k, op.transpose_b ? k : op.c.cols, op.a.dtype);
  rule.shape("c", op.c, op.c.rows, op.c.cols);
  if (op.bias) rule.tensor("bias", op.bias, 1, op.c.cols, op.a.dtype);
  if (op.operands != Operands::as_given) rule.type("a, to be rounded,", op.a, {DType::bf16});
  const auto check_known = [&](const char* name, const Tensor& x, const Tensor& amax, const Tensor& rounded) {
    if (amax) rule.tensor(name, amax, 1, rounded ? kAmaxCols : amax.cols, DType::f32);
    if (rounded) rule.like(name, rounded, x);
    MS_ASSERT(amax || !rounded, "{}: {} is missing", rule.op, name);
  };
  check_known("a_amax", op.a, op.a_amax, op.a_rounded);
  check_known("b_amax", op.b, op.b_amax, op.b_rounded);
  MS_ASSERT(!(op.gelu_y && op.gelu_x) && !((op.gelu_y || op.gelu_x) && op.accumulate),
            "{}: gelu_y and gelu_x exclude each other and accumulate", rule.op);
  if (op.gelu_y) rule.like("gelu_y", op.gelu_y, op.c);
  if (op.gelu_x) rule.like("gelu_x", op.gelu_x, op.c);
  if (!op.a_sums) return;
  rule.tensor("a_sums", op.a_sums, 1, op.c.rows, op.c.dtype);
  MS_ASSERT(op.transpose_a && op.operands == Operands::as_given && !op.bias && !op.gelu_y && !op.gelu_x,
            "{}: a_sums of a matmul that is not a weight's gradient in its operands' type", rule.op);
}
void check(const Rule& rule, const Amax& op) {
  rule.tensor("out", op.out, 1, 1, DType::f32);
  rule.type("x", op.x, {DType::bf16});
}
void check(const Rule& rule, const RoundToFp8& op) {
  rule.type("x", op.x, {DType::bf16});
  rule.like("out", op.out, op.x);
  rule.tensor("amax", op.amax, 1, kAmaxCols, DType::f32);
  if (op.sums) rule.accumulator("sums", op.sums, 1, op.x.cols);
  MS_ASSERT(op.out.contiguous(), "{}: gaps between the rows of out", rule.op);
}
void check(const Rule& rule, const AttentionFwd& op) {
  check_attention(rule, op);
  rule.type("o", op.o, {op.q.dtype, DType::f32});
  rule.shape("o", op.o, op.q.rows, op.q.cols);
}
void check(const Rule& rule, const AttentionBwd& op) {
  check_attention(rule, op);
  rule.like("o", op.o, op.q);
  rule.type("dq", op.dq, {op.q.dtype, DType::f32});
  rule.shape("dq", op.dq, op.q.rows, op.q.cols);
  rule.tensor("dk", op.dk, op.k.rows, op.k.cols, op.dq.dtype);
  rule.like("dv", op.dv, op.dk);
  rule.like("dout", op.dout, op.q);
  rule.tensor("delta", op.delta, op.lse.rows, op.lse.cols, DType::f32);
}
void check(const Rule& rule, const LayerNormFwd& op) {
  check_norm(rule, op.x, op.y, op.rstd, op.gain);
  rule.like("mean", op.mean, op.rstd);
  rule.like("bias", op.bias, op.gain);
  rule.amax(op.amax, op.y);
  check_residual(rule, op.residual, op.x);
}
void check(const Rule& rule, const LayerNormBwd& op) {
  check_norm(rule, op.x, op.dx, op.rstd, op.gain);
  rule.like("dy", op.dy, op.x);
  rule.like("mean", op.mean, op.rstd);
  rule.accumulator("dgain", op.dgain, 1, op.x.cols);
  rule.like("dbias", op.dbias, op.dgain);
  rule.amax(op.amax, op.dx);
}
void check(const Rule& rule, const RmsNormFwd& op) {
  check_norm(rule, op.x, op.y, op.rstd, op.gain, op.heads);
  MS_ASSERT(op.heads == 1 || !op.residual, "{}: a residual of {} heads", rule.op, op.heads);
  rule.amax(op.amax, op.y);
  check_residual(rule, op.residual, op.x);
}
void check(const Rule& rule, const RmsNormBwd& op) {
  check_norm(rule, op.x, op.dx, op.rstd, op.gain, op.heads);
  rule.like("dy", op.dy, op.x);
  rule.accumulator("dgain", op.dgain, 1, op.gain.cols);
  rule.amax(op.amax, op.dx);
}
void check(const Rule& rule, const GeluFwd& op) {
  rule.activation("x", op.x);
  rule.like("y", op.y, op.x);
  rule.amax(op.amax, op.y);
}
void check(const Rule& rule, const GeluBwd& op) {
  rule.activation("x", op.x);
  rule.like("dy", op.dy, op.x);
  rule.like("dx", op.dx, op.x);
  rule.amax(op.amax, op.dx);
}
void check(const Rule& rule, const SwigluFwd& op) {
  rule.activation("x", op.x);
  rule.tensor("x", op.x, op.y.rows, 2 * op.y.cols, op.y.dtype);
  rule.amax(op.amax, op.y);
  if (op.factors) rule.tensor("factors", op.factors, 1, op.y.rows, DType::f32);
}
void check(const Rule& rule, const SwigluBwd& op) {
  rule.activation("x", op.x);
  rule.tensor("x", op.x, op.dy.rows, 2 * op.dy.cols, op.dy.dtype);
  rule.like("dx", op.dx, op.x);
  rule.amax(op.amax, op.dx);
  if (!op.factors) return;
  rule.tensor("factors", op.factors, 1, op.dy.rows, DType::f32);
  rule.like("dfactors", op.dfactors, op.factors);
}
void check(const Rule& rule, const RotaryTable& op) {
  rule.type("table", op.table, {DType::f32});
  MS_ASSERT(op.table.cols % 2 == 0, "{}: {} columns", rule.op, op.table.cols);
}
void check(const Rule& rule, const Rotary& op) {
  rule.activation("x", op.x);
  rule.tensor("table", op.table, op.seq, op.table.cols, DType::f32);
  MS_ASSERT(op.head_dim > 0 && op.x.cols % op.head_dim == 0, "{}: heads of {} in {} columns", rule.op, op.head_dim,
            op.x.cols);
  MS_ASSERT(op.table.cols > 0 && op.table.cols % 2 == 0 && op.table.cols <= op.head_dim, "{}: {} of a head of {}",
            rule.op, op.table.cols, op.head_dim);
}
void check(const Rule& rule, const EmbeddingFwd& op) {
  rule.activation("y", op.y);
  rule.tensor("table", op.table, op.table.rows, op.y.cols, op.y.dtype);
  rule.tensor("tokens", op.tokens, 1, op.y.rows, DType::i32);
}
void check(const Rule& rule, const EmbeddingBwd& op) {
  rule.activation("dy", op.dy);
  rule.accumulator("dtable", op.dtable, op.dtable.rows, op.dy.cols);
  rule.tensor("tokens", op.tokens, 1, op.dy.rows, DType::i32);
}
void check(const Rule& rule, const PositionFwd& op) {
  rule.activation("y", op.y);
  rule.tensor("table", op.table, op.table.rows, op.y.cols, op.y.dtype);
  MS_ASSERT(op.table.rows > 0 && op.offset >= 0, "{}: offset {} in {} positions", rule.op, op.offset, op.table.rows);
}
void check(const Rule& rule, const PositionBwd& op) {
  rule.activation("dy", op.dy);
  rule.accumulator("dtable", op.dtable, op.dtable.rows, op.dy.cols);
  MS_ASSERT(op.dtable.rows > 0 && op.offset >= 0, "{}: offset {} in {} positions", rule.op, op.offset, op.dtable.rows);
}
void check(const Rule& rule, const LossStats& op) {
  rule.activation("logits", op.logits);
  rule.tensor("stats", op.stats, 3, op.logits.rows, DType::f32);
  rule.tensor("targets", op.targets, 1, op.logits.rows, DType::i32);
  MS_ASSERT(op.valid >= 0 && op.valid <= op.logits.cols, "{}: {} of {} columns", rule.op, op.valid, op.logits.cols);
}
void check(const Rule& rule, const LossCombine& op) {
  MS_ASSERT(op.gathered.rows > 0 && op.gathered.rows % 3 == 0, "{}: {} rows of statistics", rule.op, op.gathered.rows);
  rule.type("gathered", op.gathered, {DType::f32});
  rule.tensor("loss", op.loss, 1, op.gathered.cols, DType::f32);
  rule.like("lse", op.lse, op.loss);
  if (op.targets) rule.tensor("targets", op.targets, 1, op.gathered.cols, DType::i32);
}
void check(const Rule& rule, const LossBackward& op) {
  rule.activation("logits", op.logits);
  rule.tensor("lse", op.lse, 1, op.logits.rows, DType::f32);
  rule.tensor("targets", op.targets, 1, op.logits.rows, DType::i32);
  MS_ASSERT(op.valid >= 0 && op.valid <= op.logits.cols, "{}: {} of {} columns", rule.op, op.valid, op.logits.cols);
}
void check(const Rule& rule, const Add& op) {
  rule.activation("y", op.y);
  rule.like("a", op.a, op.y);
  rule.like("b", op.b, op.y);
  if (op.bias) rule.tensor("bias", op.bias, 1, op.y.cols, op.y.dtype);
}
void check(const Rule& rule, const ColumnSum& op) {
  rule.activation("x", op.x);
  rule.accumulator("out", op.out, 1, op.x.cols);
}
void check(const Rule& rule, const Copy& op) {
  rule.shape("dst", op.dst, op.src.rows, op.src.cols);
  const auto pair = [&](DType x, DType y) {
    return (op.src.dtype == x && op.dst.dtype == y) || (op.src.dtype == y && op.dst.dtype == x);
  };
  MS_ASSERT(op.src.dtype == op.dst.dtype || pair(DType::f32, DType::bf16) || pair(DType::f32, DType::f64),
            "{}: from {} to {}", rule.op, to_string(op.src.dtype), to_string(op.dst.dtype));
}
void check(const Rule& rule, const Fill& op) { rule.shape("x", op.x, op.x.rows, op.x.cols); }
void check(const Rule& rule, const SumInto& op) {
  rule.tensor("out", op.out, 1, 1, DType::f64);
  rule.type("x", op.x, {DType::f32, DType::f64});
}
void check(const Rule& rule, const SumSquares& op) {
  rule.tensor("out", op.out, 1, 1, DType::f64);
  rule.activation("x", op.x);
}
void check(const Rule& rule, const ClipFactor& op) {
  rule.tensor("factor", op.factor, 1, 1, DType::f32);
  rule.tensor("norm", op.norm, 1, 1, DType::f32);
  rule.tensor("sum_squares", op.sum_squares, 1, 1, DType::f64);
}
// Parameters in their own type, with a master copy if that is not f32.
template <class Update>
void check_param(const Rule& rule, const Update& op) {
  const std::int64_t n = op.param.cols;
  rule.shape("param", op.param, 1, n);
  rule.type("param", op.param, {DType::f32, op.master ? DType::bf16 : DType::f32});
  if (op.master) rule.tensor("master", op.master, 1, n, DType::f32);
  rule.tensor("factor", op.factor, 1, 1, DType::f32);
}
void check(const Rule& rule, const AdamW& op) {
  check_param(rule, op);
  rule.accumulator("m", op.m, 1, op.param.cols);
  rule.like("v", op.v, op.m);
  rule.accumulator("grad", op.grad, 1, op.param.cols);
}
void check(const Rule& rule, const LambMoments& op) {
  const std::int64_t n = op.w.cols;
  rule.tensor("w", op.w, 1, n, DType::f32);
  rule.tensor("m", op.m, 1, n, DType::f32);
  rule.tensor("v", op.v, 1, n, DType::f32);
  rule.accumulator("grad", op.grad, 1, n);
  rule.tensor("factor", op.factor, 1, 1, DType::f32);
  if (op.norms) rule.tensor("norms", op.norms, 1, 2, DType::f64);
}
void check(const Rule& rule, const LambApply& op) {
  check_param(rule, op);
  rule.tensor("m", op.m, 1, op.param.cols, DType::f32);
  rule.tensor("v", op.v, 1, op.param.cols, DType::f32);
  rule.tensor("norms", op.norms, 1, 2, DType::f64);
}
void check(const Rule& rule, const MuonMomentum& op) {
  const std::int64_t n = op.m.cols;
  rule.tensor("u", op.u, 1, n, DType::bf16);
  rule.tensor("m", op.m, 1, n, DType::f32);
  rule.accumulator("grad", op.grad, 1, n);
  rule.tensor("factor", op.factor, 1, 1, DType::f32);
}
void check(const Rule& rule, const Normalize& op) {
  rule.type("x", op.x, {DType::bf16});
  rule.like("y", op.y, op.x);
  rule.tensor("sum_squares", op.sum_squares, 1, 1, DType::f64);
  MS_ASSERT(op.x.contiguous() && op.y.contiguous(), "{}: gaps between rows", rule.op);
}
void check(const Rule& rule, const Blend& op) {
  rule.type("a", op.a, {DType::bf16});
  rule.like("y", op.y, op.a);
  rule.tensor("b", op.b, op.a.rows, op.a.cols, DType::f32);
  MS_ASSERT(op.a.contiguous() && op.b.contiguous() && op.y.contiguous(), "{}: gaps between rows", rule.op);
}
void check(const Rule& rule, const MuonApply& op) {
  check_param(rule, op);
  rule.tensor("u", op.u, 1, op.param.cols, DType::bf16);
}
void check(const Rule& rule, const InitNormal& op) {
  rule.activation("x", op.x);
  MS_ASSERT(op.col0 >= 0 && op.row0 >= 0 && op.col0 + op.x.cols <= op.global_cols, "{}: columns {}+{} of {}", rule.op,
            op.col0, op.x.cols, op.global_cols);
}

}  // namespace

void check_op(const Matmul& op) { check(Rule{Matmul::kName}, op); }
void check_op(const GroupedMatmul& op) { check(Rule{GroupedMatmul::kName}, op); }
void check_op(const Op& op) {
  std::visit([](const auto& row) { check(Rule{row.kName}, row); }, op);
}

}  // namespace ms::tensor
