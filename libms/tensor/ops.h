// The op list: everything a device can compute, one struct a row. A struct names its tensors and scalars, says which
// tensors it reads and writes (for the race check and the cost model), and its comment is the contract that the CPU
// implementation fulfils literally and every other device is tested against.
//
// Legend. T tokens of a microbatch (batch x seq, batch-major); H hidden; C any columns; V the vocabulary shard.
// "x" is f32 or bf16 unless a type is given; arithmetic is in f32, sums of many terms in f32 with a fixed order or f64
// where it says so. "+=" accumulates. An optional tensor is absent when its data is null. Results never depend on the
// number of threads.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <variant>

#include "cost/op_class.h"
#include "tensor/tensor.h"

namespace ms::tensor {

using cost::kOpClasses;
using cost::OpClass;  // for timing tables: where the time of a step goes

enum class Access : std::uint8_t { read, write };  // write includes read-modify-write

#define MS_OP(op_name, op_class)                       \
  static constexpr std::string_view kName = (op_name); \
  static constexpr OpClass kClass = OpClass::op_class;

// What the factors of a product, of bf16, are rounded to before it is made (tensor/fp8.h): e4m3, or e5m2 the first one
// where it is a gradient, which needs more range. Each has the scale that its largest magnitude asks for: its own, or
// that of a larger tensor which it is a part of, where Largest has found it before (a_largest, b_largest; unread where
// factors are as given). One that is not finite everywhere makes the product no numbers.
enum class Factors : std::uint8_t { as_given, fp8, fp8_gradient };

// c[M,N] (+)= op(a) op(b) (+ bias[1,N]); op transposes. With transpose_a, a is [K,M]; with transpose_b, b is [N,K].
// a and b have the same type; c is f32 or that type; sums in f32. `accumulate` adds into c. bias has a's type.
// Where there is a gelu_y, like c: it becomes what GeluFwd makes of c, too. Where there is a gelu_x, like c: c becomes
// what GeluBwd makes of it and of gelu_x. Either may be made of c before it is rounded; neither with `accumulate`.
struct Matmul {
  MS_OP("matmul", matmul)
  Tensor c, a = {}, b, bias = {};
  bool transpose_a = false, transpose_b = false, accumulate = false;
  Factors factors = Factors::as_given;
  Tensor gelu_y = {}, gelu_x = {};
  Tensor a_largest = {}, b_largest = {};  // f32 [1,1]
  void each(auto&& f) const {
    f(Access::read, a), f(Access::read, b), f(Access::read, bias), f(Access::read, gelu_x);
    f(Access::read, a_largest), f(Access::read, b_largest);
    f(Access::write, c), f(Access::write, gelu_y);
  }
};

// out f32 [1,1] = the largest magnitude in x, bf16; not finite where x is not.
struct Largest {
  MS_OP("largest", elementwise)
  Tensor out, x;
  void each(auto&& f) const { f(Access::read, x), f(Access::write, out); }
};

// Causal attention without the s x s matrix. q[T, heads*head_dim], k, v[T, kv_heads*head_dim] (views with their own
// ld), o like q. Query i of a sequence sees keys j with j <= i and, where window > 0, j > i - window. Query head h
// reads key/value head h / (heads / kv_heads). lse f32 [batch*heads, seq]: log of the sum of exp(scale * q.k). Of bf16
// tensors, probabilities may be rounded to bf16 where they are factors of a product, and so may the gradients of
// scores.
struct AttentionFwd {
  MS_OP("attention_fwd", attention)
  Tensor o, lse, q, k, v;
  std::int64_t batch = 1, seq = 0, heads = 0, kv_heads = 0, head_dim = 0, window = 0;
  float scale = 1.0F;
  void each(auto&& f) const {
    f(Access::read, q), f(Access::read, k), f(Access::read, v), f(Access::write, o), f(Access::write, lse);
  }
};

// Gradients of AttentionFwd: dq, dk, dv are overwritten. delta f32 [batch*heads, seq] is scratch: rowsum(dout * o).
struct AttentionBwd {
  MS_OP("attention_bwd", attention)
  Tensor dq, dk, dv, dout, o, lse, q, k, v, delta;
  std::int64_t batch = 1, seq = 0, heads = 0, kv_heads = 0, head_dim = 0, window = 0;
  float scale = 1.0F;
  void each(auto&& f) const {
    f(Access::read, dout), f(Access::read, o), f(Access::read, lse), f(Access::read, q), f(Access::read, k);
    f(Access::read, v), f(Access::write, dq), f(Access::write, dk), f(Access::write, dv), f(Access::write, delta);
  }
};

// What is to be added up: a + b (+ bias[1,C] by row). Nothing where there is no a.
struct Addends {
  Tensor a, b, bias;
  explicit operator bool() const { return static_cast<bool>(a); }
};

// y = (x - mean) * rstd * gain + bias by row; mean, rstd f32 [1,T] are outputs. gain, bias have x's type. Where there
// are addends, x is an output, too, and becomes first what Add makes of them.
struct LayerNormFwd {
  MS_OP("layernorm_fwd", norm)
  Tensor y, mean, rstd, x, gain, bias;
  float eps = 1e-5F;
  Addends addends = {};
  void each(auto&& f) const {
    f(Access::read, addends.a), f(Access::read, addends.b), f(Access::read, addends.bias);
    f(addends ? Access::write : Access::read, x), f(Access::read, gain), f(Access::read, bias);
    f(Access::write, y), f(Access::write, mean), f(Access::write, rstd);
  }
};
// dx (+)= gradient through the norm (`accumulate` adds to dx); dgain, dbias f32 [1,C] += (rows added in order of row).
struct LayerNormBwd {
  MS_OP("layernorm_bwd", norm)
  Tensor dx, dgain, dbias, dy, x, mean, rstd, gain;
  bool accumulate = false;
  void each(auto&& f) const {
    f(Access::read, dy), f(Access::read, x), f(Access::read, mean), f(Access::read, rstd), f(Access::read, gain);
    f(Access::write, dx), f(Access::write, dgain), f(Access::write, dbias);
  }
};

// y = x * rstd * gain, rstd = 1 / sqrt(mean(x^2) + eps), f32 [1,T]. Addends as of LayerNormFwd.
struct RmsNormFwd {
  MS_OP("rmsnorm_fwd", norm)
  Tensor y, rstd, x, gain;
  float eps = 1e-5F;
  Addends addends = {};
  void each(auto&& f) const {
    f(Access::read, addends.a), f(Access::read, addends.b), f(Access::read, addends.bias);
    f(addends ? Access::write : Access::read, x), f(Access::read, gain);
    f(Access::write, y), f(Access::write, rstd);
  }
};
struct RmsNormBwd {
  MS_OP("rmsnorm_bwd", norm)
  Tensor dx, dgain, dy, x, rstd, gain;
  bool accumulate = false;
  void each(auto&& f) const {
    f(Access::read, dy), f(Access::read, x), f(Access::read, rstd), f(Access::read, gain);
    f(Access::write, dx), f(Access::write, dgain);
  }
};

// GELU, tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
struct GeluFwd {
  MS_OP("gelu_fwd", activation)
  Tensor y, x;
  void each(auto&& f) const { f(Access::read, x), f(Access::write, y); }
};
struct GeluBwd {  // dx = dy * gelu'(x); dx may be dy
  MS_OP("gelu_bwd", activation)
  Tensor dx, dy, x;
  void each(auto&& f) const { f(Access::read, dy), f(Access::read, x), f(Access::write, dx); }
};

// y[T,F] = silu(x[:, :F]) * x[:, F:], x[T,2F] holds gate then up.
struct SwigluFwd {
  MS_OP("swiglu_fwd", activation)
  Tensor y, x;
  void each(auto&& f) const { f(Access::read, x), f(Access::write, y); }
};
struct SwigluBwd {  // dx[T,2F] overwritten
  MS_OP("swiglu_bwd", activation)
  Tensor dx, dy, x;
  void each(auto&& f) const { f(Access::read, dy), f(Access::read, x), f(Access::write, dx); }
};

// table f32 [seq, head_dim]: cos(pos * base^(-2i/head_dim)) for i < head_dim/2, then the sines.
struct RotaryTable {
  MS_OP("rotary_table", init)
  Tensor table;
  float base = 10000.0F;
  void each(auto&& f) const { f(Access::write, table); }
};
// In place on x[T, heads*head_dim]: (a, b) = (x[i], x[i + head_dim/2]) -> (a cos - b sin, b cos + a sin), the position
// being row mod seq. `inverse` turns the other way: the gradient.
struct Rotary {
  MS_OP("rotary", elementwise)
  Tensor x, table;
  std::int64_t seq = 0, head_dim = 0;
  bool inverse = false;
  void each(auto&& f) const { f(Access::read, table), f(Access::write, x); }
};

// y[t] = table[tokens[t] - first] where that row exists, else 0: a vocabulary shard's part of the embedding.
struct EmbeddingFwd {
  MS_OP("embedding_fwd", embedding)
  Tensor y, table, tokens;  // tokens i32 [1,T]
  std::int64_t first = 0;
  void each(auto&& f) const { f(Access::read, table), f(Access::read, tokens), f(Access::write, y); }
};
struct EmbeddingBwd {  // dtable f32 [V,H] +=, tokens added in order of t
  MS_OP("embedding_bwd", embedding)
  Tensor dtable, dy, tokens;
  std::int64_t first = 0;
  void each(auto&& f) const { f(Access::read, dy), f(Access::read, tokens), f(Access::write, dtable); }
};
// y[t] += table[(offset + t) mod seq]; `offset` is the first row's place in the microbatch.
struct PositionFwd {
  MS_OP("position_fwd", embedding)
  Tensor y, table;
  std::int64_t offset = 0;
  void each(auto&& f) const { f(Access::read, table), f(Access::write, y); }
};
struct PositionBwd {  // dtable f32 [seq,H] +=, rows added in order of t
  MS_OP("position_bwd", embedding)
  Tensor dtable, dy;
  std::int64_t offset = 0;
  void each(auto&& f) const { f(Access::read, dy), f(Access::write, dtable); }
};

// Vocabulary-parallel cross entropy, part one, over this shard's columns [0, valid) of logits[T,V] (the rest is
// padding): stats f32 [3,T] = row maximum, sum of exp(logit - maximum), logit of the target (0 if it is not in this
// shard). A shard with valid = 0 gives (-inf, 0, 0).
struct LossStats {
  MS_OP("loss_stats", loss)
  Tensor stats, logits, targets;  // targets i32 [1,T], global ids
  std::int64_t first = 0, valid = 0;
  void each(auto&& f) const { f(Access::read, logits), f(Access::read, targets), f(Access::write, stats); }
};
// Part two: the stats of all shards, gathered [3*shards, T], give lse and loss, f32 [1,T], shards combined in order.
struct LossCombine {
  MS_OP("loss_combine", loss)
  Tensor loss, lse, gathered;
  void each(auto&& f) const { f(Access::read, gathered), f(Access::write, loss), f(Access::write, lse); }
};
// Part three, in place: logits become scale * (exp(logit - lse) - [column is the target]); padding columns become 0.
struct LossBackward {
  MS_OP("loss_bwd", loss)
  Tensor logits, lse, targets;
  std::int64_t first = 0, valid = 0;
  float scale = 1.0F;
  void each(auto&& f) const { f(Access::read, lse), f(Access::read, targets), f(Access::write, logits); }
};

// y = a + b (+ bias[1,C] by row). y may be a or b.
struct Add {
  MS_OP("add", elementwise)
  Tensor y, a, b, bias;
  void each(auto&& f) const { f(Access::read, a), f(Access::read, b), f(Access::read, bias), f(Access::write, y); }
};
// out f32 [1,C] += column sums of x[T,C], rows in order.
struct ColumnSum {
  MS_OP("column_sum", elementwise)
  Tensor out, x;
  void each(auto&& f) const { f(Access::read, x), f(Access::write, out); }
};
// dst = src with conversion of type; shapes equal, any ld; either side may be host memory.
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
// out f64 [1,1] += scale * sum of x (f32 or f64), added in f64.
struct SumInto {
  MS_OP("sum_into", elementwise)
  Tensor out, x;
  double scale = 1.0;
  void each(auto&& f) const { f(Access::read, x), f(Access::write, out); }
};
// out f64 [1,1] += sum of x^2, added in f64.
struct SumSquares {
  MS_OP("sum_squares", optimizer)
  Tensor out, x;
  void each(auto&& f) const { f(Access::read, x), f(Access::write, out); }
};
// norm f32 [1,1] = sqrt(sum_squares f64 [1,1]); factor f32 [1,1] = min(1, max_norm / norm), exactly 1 when inactive
// (max_norm <= 0 switches clipping off). A norm that is not finite makes the factor 0: the optimizer skips the step.
struct ClipFactor {
  MS_OP("clip_factor", optimizer)
  Tensor factor, norm, sum_squares;
  float max_norm = 0.0F;
  void each(auto&& f) const { f(Access::read, sum_squares), f(Access::write, factor), f(Access::write, norm); }
};
// Decoupled weight decay (Loshchilov & Hutter). With g = factor * grad:
//   m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g^2;
//   w = w - lr (weight_decay w + (m / correction1) / (sqrt(v / correction2) + eps))
// on w = master (f32), param = w in its type; an absent master means param is f32 and is w itself. All are flat [1,n].
// factor 0 leaves everything as it is.
struct AdamW {
  MS_OP("adamw", optimizer)
  Tensor param, master, m, v, grad, factor;
  float lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, correction1 = 1, correction2 = 1;
  void each(auto&& f) const {
    f(Access::read, grad), f(Access::read, factor), f(Access::write, param), f(Access::write, master);
    f(Access::write, m), f(Access::write, v);
  }
};

// LAMB (You et al. 2020, arXiv 1904.00962) of one parameter, or of a slice of it, in two halves with a sum over the
// ranks between them. With g = factor * grad and w in f32:
//   m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g^2;
//   u = (m / correction1) / (sqrt(v / correction2) + eps) + weight_decay w
//   norms f64 [1,2] += {sum of w^2, sum of u^2}, added in f64; absent where another rank counts this slice
// factor 0 leaves everything as it is.
struct LambMoments {
  MS_OP("lamb_moments", optimizer)
  Tensor norms, m, v, w, grad, factor;
  float beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, correction1 = 1, correction2 = 1;
  void each(auto&& f) const {
    f(Access::read, grad), f(Access::read, factor), f(Access::read, w);
    f(Access::write, m), f(Access::write, v), f(Access::write, norms);
  }
};
// The second half, with the norms of the whole parameter: w = w - lr (sqrt(norms[0]) / sqrt(norms[1])) u, the quotient
// being 1 where either is 0, and u as above, once more. param and master as AdamW has them. factor 0 leaves everything.
struct LambApply {
  MS_OP("lamb_apply", optimizer)
  Tensor param, master, m, v, norms, factor;
  float lr = 0, eps = 0, weight_decay = 0, correction1 = 1, correction2 = 1;
  void each(auto&& f) const {
    f(Access::read, m), f(Access::read, v), f(Access::read, norms), f(Access::read, factor);
    f(Access::write, param), f(Access::write, master);
  }
};

// x = std * N(0,1), element (i, j) being number (row0 + i) * global_cols + col0 + j of the logical parameter `key`
// (base/rng.h, normal()): independent of how the parameter is cut, and of the device but for the last place of f32.
// Rows with row0 + i at or beyond valid_rows are 0
// (padding).
struct InitNormal {
  MS_OP("init_normal", init)
  Tensor x;
  std::uint64_t seed = 0, key = 0;
  std::int64_t row0 = 0, col0 = 0, global_cols = 0, valid_rows = 0;
  float std = 1.0F;
  void each(auto&& f) const { f(Access::write, x); }
};

#undef MS_OP

using Op = std::variant<Matmul, Largest, AttentionFwd, AttentionBwd, LayerNormFwd, LayerNormBwd, RmsNormFwd, RmsNormBwd,
                        GeluFwd, GeluBwd, SwigluFwd, SwigluBwd, RotaryTable, Rotary, EmbeddingFwd, EmbeddingBwd,
                        PositionFwd, PositionBwd, LossStats, LossCombine, LossBackward, Add, ColumnSum, Copy, Fill,
                        SumInto, SumSquares, ClipFactor, AdamW, LambMoments, LambApply, InitNormal>;

inline std::string_view op_name(const Op& op) {
  return std::visit([](const auto& row) { return row.kName; }, op);
}
inline OpClass op_class(const Op& op) {
  return std::visit([](const auto& row) { return row.kClass; }, op);
}
// f(Access, const Tensor&) for every tensor that is present.
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
