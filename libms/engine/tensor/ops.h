// The op list: everything that a device can compute, one struct an op. A struct names its tensors and scalars and says
// which tensors it reads and writes (for the race check and the cost model). Its comment is the contract: the CPU
// implementation is the reference, and every other device is tested against it.
//
// Legend. T tokens of a microbatch (batch x seq, batch-major); H hidden; C any columns; V the vocabulary shard. "x" is
// f32 or bf16 unless a type is given. Arithmetic is in f32. Sums of many terms are in f32 with a fixed order, or in f64
// where the op says so. "+=" accumulates; an accumulator is f32 or bf16, and receives the op's sum, which is in f32, in
// one addition that is rounded once. An optional tensor is absent when its data is null. Results never depend on the
// number of threads. `amax`, if present, starts with f32 [1,1], the Amax of the result y or dx, which is then in bf16.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <variant>

#include "tensor/attention_ops.h"
#include "tensor/expert_ops.h"
#include "tensor/muon_ops.h"
#include "tensor/op.h"
#include "tensor/rotary_scaling.h"

namespace ms::tensor {

// Tells whether a bf16 matmul rounds its operands to fp8 (tensor/fp8.h): b to e4m3, and a to e4m3, or to e5m2 if it is
// a gradient, which needs more range. Each operand is scaled by its amax, or by the amax of a larger tensor that
// contains it if the caller passes one that an Amax op has computed (a_amax, b_amax; ignored for as_given). An operand
// that a RoundToFp8 op has rounded comes with what that has made of it, too: nothing is rounded again, and the bits are
// the same. An operand with an infinity or a NaN makes the whole result NaN.
enum class Operands : std::uint8_t { as_given, fp8, fp8_gradient };

// c[M,N] (+)= op(a) op(b) (+ bias[1,N]); op transposes. With transpose_a, a is [K,M]; with transpose_b, b is [N,K]. a
// and b have the same type; c is f32 or that type; sums are in f32. `accumulate` adds into c. bias has a's type. If
// gelu_y is present, like c, it receives what GeluFwd computes from c. If gelu_x is present, like c, then c becomes
// what GeluBwd computes from c and gelu_x. Both may be computed before c is rounded. Neither is allowed with
// `accumulate`. If c is a weight's gradient, dy^T x, then a_sums [1,M], of c's type, may receive that of its bias, the
// ColumnSum of a[K,M], added if c is: only with transpose_a, operands as given, no bias and no GELU.
struct Matmul {
  MS_OP("matmul", matmul)
  Tensor c, a = {}, b, bias = {};
  bool transpose_a = false, transpose_b = false, accumulate = false;
  Operands operands = Operands::as_given;
  Tensor gelu_y = {}, gelu_x = {}, a_sums = {};
  Tensor a_amax = {}, b_amax = {};        // f32 [1,1], or as RoundToFp8 leaves it
  Tensor a_rounded = {}, b_rounded = {};  // RoundToFp8::out of a and b
  int beside = 0;                         // the width (comm::Group) of messages that are in flight meanwhile
  void each(auto&& f) const {
    f(Access::read, a), f(Access::read, b), f(Access::read, bias), f(Access::read, gelu_x);
    f(Access::read, a_amax), f(Access::read, b_amax), f(Access::read, a_rounded), f(Access::read, b_rounded);
    f(Access::write, c), f(Access::write, gelu_y), f(Access::write, a_sums);
  }
};

// An operand rounded to fp8 has f32 [1,kAmaxCols]: its amax and, at kAmaxOfDevice, a number of the device's. cuBLASLt
// runs no fp8 GEMM whose scales are not aligned to 16 bytes, as an arena aligns them.
inline constexpr std::int64_t kAmaxCols = 5, kAmaxOfDevice = 4;

// out f32 [1,1] = amax of x, the largest |element|, x in bf16. Not finite if an element of x is not.
struct Amax {
  MS_OP("amax", elementwise)
  Tensor out, x;
  void each(auto&& f) const { f(Access::read, x), f(Access::write, out); }
};

// Rounds x, in bf16, to fp8 once for several matmuls: to e5m2 if it is a gradient, otherwise to e4m3. `out` is like x,
// without gaps, and holds the numbers as matmuls of the same device take them: in bf16, or, on a GPU with fp8 GEMMs, in
// fp8 as they lie in x and then transposed. amax f32 [1,kAmaxCols]; x is not read for it if it `has_amax`. sums [1,C],
// if present, (+)= column sums of x, not of the rounded numbers; a GPU adds the rows in another order than ColumnSum.
struct RoundToFp8 {
  MS_OP("round_to_fp8", elementwise)
  Tensor out, amax, x, sums = {};
  bool is_gradient = false, has_amax = false, accumulate = true;
  void each(auto&& f) const {
    f(Access::read, x), f(Access::write, out), f(Access::write, amax), f(Access::write, sums);
  }
};

// The residual terms a + b (+ bias[1,C] by row), not yet summed: the next norm adds them. Empty if a is absent.
struct Residual {
  Tensor a, b, bias;
  explicit operator bool() const { return static_cast<bool>(a); }
};

// y = (x - mean) * rstd * gain + bias by row; mean, rstd f32 [1,T] are outputs. gain, bias have x's type. If `residual`
// is not empty, x is an output too: it first becomes the sum of the residual terms, as Add computes it.
struct LayerNormFwd {
  MS_OP("layernorm_fwd", norm)
  Tensor y, mean, rstd, x, gain, bias;
  float eps = 1e-5F;
  Residual residual = {};
  Tensor amax = {};  // of y
  void each(auto&& f) const {
    f(Access::read, residual.a), f(Access::read, residual.b), f(Access::read, residual.bias);
    f(residual ? Access::write : Access::read, x), f(Access::read, gain), f(Access::read, bias);
    f(Access::write, y), f(Access::write, mean), f(Access::write, rstd), f(Access::write, amax);
  }
};
// dx (+)= gradient through the norm (`accumulate` adds to dx); dgain, dbias [1,C] += (rows added in row order).
struct LayerNormBwd {
  MS_OP("layernorm_bwd", norm)
  Tensor dx, dgain, dbias, dy, x, mean, rstd, gain;
  bool accumulate = false;
  Tensor amax = {};  // of dx
  void each(auto&& f) const {
    f(Access::read, dy), f(Access::read, x), f(Access::read, mean), f(Access::read, rstd), f(Access::read, gain);
    f(Access::write, dx), f(Access::write, dgain), f(Access::write, dbias), f(Access::write, amax);
  }
};

// y = x * rstd * gain, rstd = 1 / sqrt(mean(x^2) + eps), f32 [1,T]. `residual` as in LayerNormFwd. With several heads,
// each of the equal parts of a row is normed as a row: gain is [1,C/heads], rstd [1,T*heads], and there is no residual.
struct RmsNormFwd {
  MS_OP("rmsnorm_fwd", norm)
  Tensor y, rstd, x, gain;
  float eps = 1e-5F;
  Residual residual = {};
  std::int64_t heads = 1;
  Tensor amax = {};  // of y
  void each(auto&& f) const {
    f(Access::read, residual.a), f(Access::read, residual.b), f(Access::read, residual.bias);
    f(residual ? Access::write : Access::read, x), f(Access::read, gain);
    f(Access::write, y), f(Access::write, rstd), f(Access::write, amax);
  }
};
struct RmsNormBwd {  // dx may be dy, unless it accumulates
  MS_OP("rmsnorm_bwd", norm)
  Tensor dx, dgain, dy, x, rstd, gain;
  bool accumulate = false;
  std::int64_t heads = 1;
  Tensor amax = {};  // of dx
  void each(auto&& f) const {
    f(Access::read, dy), f(Access::read, x), f(Access::read, rstd), f(Access::read, gain);
    f(Access::write, dx), f(Access::write, dgain), f(Access::write, amax);
  }
};

// GELU, tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); or `exact`: 0.5 x (1 + erf(x / sqrt(2))).
struct GeluFwd {
  MS_OP("gelu_fwd", activation)
  Tensor y, x, amax = {};
  bool exact = false;
  void each(auto&& f) const { f(Access::read, x), f(Access::write, y), f(Access::write, amax); }
};
struct GeluBwd {  // dx = dy * gelu'(x); dx may be dy
  MS_OP("gelu_bwd", activation)
  Tensor dx, dy, x, amax = {};
  bool exact = false;
  void each(auto&& f) const { f(Access::read, dy), f(Access::read, x), f(Access::write, dx), f(Access::write, amax); }
};

// y[T,F] = silu(x[:, :F]) * x[:, F:], x[T,2F] holds gate then up; times `factors`, f32 [1,T], by row, if present.
struct SwigluFwd {
  MS_OP("swiglu_fwd", activation)
  Tensor y, x, amax = {}, factors = {};
  void each(auto&& f) const {
    f(Access::read, x), f(Access::read, factors), f(Access::write, y), f(Access::write, amax);
  }
};
struct SwigluBwd {  // dx[T,2F] and dfactors, like factors, are overwritten
  MS_OP("swiglu_bwd", activation)
  Tensor dx, dy, x, amax = {}, factors = {}, dfactors = {};
  void each(auto&& f) const {
    f(Access::read, dy), f(Access::read, x), f(Access::read, factors);
    f(Access::write, dx), f(Access::write, amax), f(Access::write, dfactors);
  }
};

// table f32 [seq, R]: cos(pos * base^(-2i/R)), scaled, for i < R/2, then the sines. pos is `first` in the first row.
struct RotaryTable {
  MS_OP("rotary_table", init)
  Tensor table;
  float base = 10000.0F;
  RotaryScaling scaling = {};
  std::int64_t first = 0;
  void each(auto&& f) const { f(Access::write, table); }
};
// In place on the first R elements of each head of x[T, heads*head_dim], R = table.cols <= head_dim:
// (a, b) = (x[i], x[i + R/2]) -> (a cos - b sin, b cos + a sin). The position is row mod seq. `inverse` rotates the
// other way, which is the gradient.
struct Rotary {
  MS_OP("rotary", elementwise)
  Tensor x, table;
  std::int64_t seq = 0, head_dim = 0;
  bool inverse = false;
  void each(auto&& f) const { f(Access::read, table), f(Access::write, x); }
};

// y[t] = table[tokens[t] - first] if that row exists, else 0: a vocabulary shard's part of the embedding.
struct EmbeddingFwd {
  MS_OP("embedding_fwd", embedding)
  Tensor y, table, tokens;  // tokens i32 [1,T]
  std::int64_t first = 0;
  void each(auto&& f) const { f(Access::read, table), f(Access::read, tokens), f(Access::write, y); }
};
struct EmbeddingBwd {  // dtable [V,H] +=, tokens added in the order of t
  MS_OP("embedding_bwd", embedding)
  Tensor dtable, dy, tokens;
  std::int64_t first = 0;
  void each(auto&& f) const { f(Access::read, dy), f(Access::read, tokens), f(Access::write, dtable); }
};
// y[t] += table[(offset + t) mod seq]; `offset` is the first row's position in the microbatch.
struct PositionFwd {
  MS_OP("position_fwd", embedding)
  Tensor y, table;
  std::int64_t offset = 0;
  void each(auto&& f) const { f(Access::read, table), f(Access::write, y); }
};
struct PositionBwd {  // dtable [seq,H] +=, rows added in the order of t
  MS_OP("position_bwd", embedding)
  Tensor dtable, dy;
  std::int64_t offset = 0;
  void each(auto&& f) const { f(Access::read, dy), f(Access::write, dtable); }
};

// Vocabulary-parallel cross entropy, part one, over this shard's columns [0, valid) of logits[T,V] (the rest is
// padding). stats f32 [3,T] = row maximum, sum of exp(logit - maximum), logit of the target (0 if it is not in this
// shard). A shard with valid = 0 gives (-inf, 0, 0).
struct LossStats {
  MS_OP("loss_stats", loss)
  Tensor stats, logits, targets;  // targets i32 [1,T], global ids
  std::int64_t first = 0, valid = 0;
  void each(auto&& f) const { f(Access::read, logits), f(Access::read, targets), f(Access::write, stats); }
};
// Part two: the stats of all shards, gathered [3*shards, T], give lse and loss, f32 [1,T], combined in shard order. A
// negative target is ignored: its loss is 0. Without targets every token counts.
struct LossCombine {
  MS_OP("loss_combine", loss)
  Tensor loss, lse, gathered, targets;
  void each(auto&& f) const {
    f(Access::read, gathered), f(Access::read, targets), f(Access::write, loss), f(Access::write, lse);
  }
};
// Part three, in place: logits become scale * ((1 + 2 z lse) exp(logit - lse) - [column is the target]), the gradient
// of scale * (loss + z lse^2); padding columns, and the rows of ignored targets, become 0.
struct LossBackward {
  MS_OP("loss_bwd", loss)
  Tensor logits, lse, targets;
  std::int64_t first = 0, valid = 0;
  float scale = 1.0F, z = 0.0F;
  void each(auto&& f) const { f(Access::read, lse), f(Access::read, targets), f(Access::write, logits); }
};

// y = a + b (+ bias[1,C] by row). y may be a or b.
struct Add {
  MS_OP("add", elementwise)
  Tensor y, a, b, bias;
  void each(auto&& f) const { f(Access::read, a), f(Access::read, b), f(Access::read, bias), f(Access::write, y); }
};
// out [1,C] (+)= column sums of x[T,C], rows in order.
struct ColumnSum {
  MS_OP("column_sum", elementwise)
  Tensor out, x;
  bool accumulate = true;
  void each(auto&& f) const { f(Access::read, x), f(Access::write, out); }
};
// dst = src, converted to dst's type; shapes equal, any ld; either side may be host memory.
struct Copy {
  MS_OP("copy", elementwise)
  Tensor dst, src;
  void each(auto&& f) const { f(Access::read, src), f(Access::write, dst); }
};
struct Fill {  // every element = value
  MS_OP("fill", elementwise)
  Tensor x;
  float value = 0.0F;
  void each(auto&& f) const { f(Access::write, x); }
};
// out f64 [1,1] += scale * sum of x (f32 or f64), summed in f64.
struct SumInto {
  MS_OP("sum_into", elementwise)
  Tensor out, x;
  double scale = 1.0;
  void each(auto&& f) const { f(Access::read, x), f(Access::write, out); }
};
// out f64 [1,1] += sum of x^2, summed in f64.
struct SumSquares {
  MS_OP("sum_squares", optimizer)
  Tensor out, x;
  void each(auto&& f) const { f(Access::read, x), f(Access::write, out); }
};
// norm f32 [1,1] = sqrt(sum_squares f64 [1,1]); factor f32 [1,1] = min(1, max_norm / norm), exactly 1 when inactive
// (max_norm <= 0 switches clipping off). If the norm is not finite or above skip_above, the factor is 0, and the
// optimizer skips the step.
struct ClipFactor {
  MS_OP("clip_factor", optimizer)
  Tensor factor, norm, sum_squares;
  float max_norm = 0.0F;
  float skip_above = std::numeric_limits<float>::infinity();
  void each(auto&& f) const { f(Access::read, sum_squares), f(Access::write, factor), f(Access::write, norm); }
};
// Decoupled weight decay (Loshchilov & Hutter). With g = factor * grad:
//   m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g^2;
//   w = w - lr (weight_decay w + (m / correction1) / (sqrt(v / correction2) + eps))
// on w = master (f32); param = w in its type. An absent master means that param is f32 and is w itself. All are flat
// [1,n]; grad is f32 or bf16. factor 0 leaves everything unchanged.
// m and v are f32, or both bf16: w then follows from them before they are rounded, and they are rounded up with the
// probability that makes their mean exact (stochastic rounding), since to nearest a v that changes by less than 2^-9 of
// itself would not change at all. The chance is a hash of m, v and `seed`, which changes from step to step: the low and
// the high half of h(bits(m) ^ h(bits(v) + 0x9E3779B9 seed)), with Wellons' lowbias32 as h. So an element is rounded in
// the same way on whatever rank.
struct AdamW {
  MS_OP("adamw", optimizer)
  Tensor param, master, m, v, grad, factor;
  float lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, correction1 = 1, correction2 = 1;
  std::uint32_t seed = 0;
  void each(auto&& f) const {
    f(Access::read, grad), f(Access::read, factor), f(Access::write, param), f(Access::write, master);
    f(Access::write, m), f(Access::write, v);
  }
};

// LAMB (You et al. 2020, arXiv 1904.00962) of one parameter, or of a slice of it, in two halves with an all-reduce of
// the norms between them. With g = factor * grad, grad in f32 or bf16, and w in f32:
//   m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g^2;
//   u = (m / correction1) / (sqrt(v / correction2) + eps) + weight_decay w
//   norms f64 [1,2] += {sum of w^2, sum of u^2}, summed in f64; absent if another rank counts this slice
// factor 0 leaves everything unchanged.
struct LambMoments {
  MS_OP("lamb_moments", optimizer)
  Tensor norms, m, v, w, grad, factor;
  float beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, correction1 = 1, correction2 = 1;
  void each(auto&& f) const {
    f(Access::read, grad), f(Access::read, factor), f(Access::read, w);
    f(Access::write, m), f(Access::write, v), f(Access::write, norms);
  }
};
// The second half, with the norms of the whole parameter: w = w - lr (sqrt(norms[0]) / sqrt(norms[1])) u, with u as
// above, computed again. The quotient is 1 if either norm is 0. param, master and factor as in AdamW.
struct LambApply {
  MS_OP("lamb_apply", optimizer)
  Tensor param, master, m, v, norms, factor;
  float lr = 0, eps = 0, weight_decay = 0, correction1 = 1, correction2 = 1;
  void each(auto&& f) const {
    f(Access::read, m), f(Access::read, v), f(Access::read, norms), f(Access::read, factor);
    f(Access::write, param), f(Access::write, master);
  }
};

// x = std * N(0,1). Element (i, j) is number (row0 + i) * global_cols + col0 + j of the logical parameter `key`
// (base/rng.h, normal()), so that values depend neither on how the parameter is sharded nor, except for the last place
// of f32, on the device. Rows with row0 + i >= valid_rows are padding and become 0.
struct InitNormal {
  MS_OP("init_normal", init)
  Tensor x;
  std::uint64_t seed = 0, key = 0;
  std::int64_t row0 = 0, col0 = 0, global_cols = 0, valid_rows = 0;
  float std = 1.0F;
  void each(auto&& f) const { f(Access::write, x); }
};

#undef MS_OP
using Op = std::variant<Matmul, Amax, RoundToFp8, AttentionFwd, AttentionBwd, LayerNormFwd, LayerNormBwd, RmsNormFwd,
                        RmsNormBwd, GeluFwd, GeluBwd, SwigluFwd, SwigluBwd, RotaryTable, Rotary, EmbeddingFwd,
                        EmbeddingBwd, PositionFwd, PositionBwd, LossStats, LossCombine, LossBackward, Add, ColumnSum,
                        Copy, Fill, SumInto, SumSquares, ClipFactor, AdamW, LambMoments, LambApply, MuonMomentum,
                        Normalize, Blend, MuonApply, InitNormal, GroupedMatmul, Route, RouteBwd, ExpertCount,
                        ExpertBias, ExpertDispatch, ExpertCombine, ExpertSum>;

inline std::string_view op_name(const Op& op) {
  return std::visit([](const auto& row) { return row.kName; }, op);
}
inline OpClass op_class(const Op& op) {
  return std::visit([](const auto& row) { return row.kClass; }, op);
}
// Calls f(Access, const Tensor&) for every tensor that is present.
template <class F>
void each_access(const Op& op, F&& f) {
  std::visit(
      [&](const auto& row) {
        row.each([&](Access access, const Tensor& tensor) {
          if (tensor) f(access, tensor);
        });
      },
      op);
}

}  // namespace ms::tensor
