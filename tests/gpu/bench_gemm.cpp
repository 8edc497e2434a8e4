// gpu_bench: matmuls and attention at the shapes of training, issued as the engine does (module nn).
#include <cmath>

#include "bench.h"

namespace ms::tensor::bench {
namespace {

struct Model {
  const char* name;
  std::int64_t tokens, hidden, kv, ffn, vocabulary;
  bool gpt;  // biases, no gate
};
constexpr Model kModels[] = {{"llama-8b", 8192, 4096, 1024, 14336, 128256, false},
                             {"gpt-xl", 8192, 1600, 1600, 6400, 50304, true},
                             {"gpt-175b", 2048, 12288, 12288, 49152, 51200, true}};

// The GELU that the engine fuses into a layer's matmul.
enum class Gelu : std::uint8_t { none, of_y, of_dx };

// y = x w', dx = dy w, dw += dy' x. Rounding the operands to fp8 counts as part of the matmul. A matmul with a fused
// GELU, or with the bias's gradient, is also measured without it.
void measure_layer(Bench& bench, const std::string& name, std::int64_t tokens, std::int64_t in, std::int64_t out,
                   bool bias, bool fp8, Gelu gelu) {
  const Operands forward = fp8 ? Operands::fp8 : Operands::as_given;
  const Operands gradient = fp8 ? Operands::fp8_gradient : Operands::as_given;
  const auto product = [&](const std::string& which, std::function<Op(Tensors&)> make) {
    bench.computes({.shape = fmt::format("{}x{}x{}", tokens, out, in),
                    .remark = fmt::format("{} {}{}", name, which, fp8 ? " fp8" : ""),
                    .make = std::move(make)});
  };
  const auto x = [=](Tensors& make, std::int64_t cols) { return make.normal(kBf16, tokens, cols); };
  const auto weight = [=](Tensors& make) { return make.normal(kBf16, out, in); };
  product(bias ? "y bias" : "y", [=](Tensors& t) -> Op {
    return Matmul{.c = x(t, out),
                  .a = x(t, in),
                  .b = weight(t),
                  .bias = bias ? t.normal(kBf16, 1, out) : Tensor{},
                  .transpose_b = true,
                  .operands = forward};
  });
  product("dx", [=](Tensors& t) -> Op {
    return Matmul{.c = x(t, in), .a = x(t, out), .b = weight(t), .bias = {}, .operands = gradient};
  });
  if (gelu == Gelu::of_y) {
    product("y bias gelu", [=](Tensors& t) -> Op {
      return Matmul{.c = x(t, out),
                    .a = x(t, in),
                    .b = weight(t),
                    .bias = t.normal(kBf16, 1, out),
                    .transpose_b = true,
                    .operands = forward,
                    .gelu_y = x(t, out)};
    });
  } else if (gelu == Gelu::of_dx) {
    product("dx gelu'", [=](Tensors& t) -> Op {
      return Matmul{.c = x(t, in), .a = x(t, out), .b = weight(t), .operands = gradient, .gelu_x = x(t, in)};
    });
  }
  product("dw", [=](Tensors& t) -> Op {
    return Matmul{.c = t.zeros(kF32, out, in),
                  .a = x(t, out),
                  .b = x(t, in),
                  .bias = {},
                  .transpose_a = true,
                  .accumulate = true,
                  .operands = gradient};
  });
  if (!bias || fp8) return;
  product("dw and bias", [=](Tensors& t) -> Op {
    return Matmul{.c = t.zeros(kF32, out, in),
                  .a = x(t, out),
                  .b = x(t, in),
                  .transpose_a = true,
                  .accumulate = true,
                  .a_sums = t.zeros(kF32, 1, out)};
  });
}

void measure_model(Bench& bench, const Model& model) {
  const std::int64_t tokens = bench.size(model.tokens), hidden = bench.size(model.hidden), kv = bench.size(model.kv),
                     ffn = bench.size(model.ffn), vocabulary = bench.size(model.vocabulary);
  const auto layer = [&](std::string_view part, std::int64_t in, std::int64_t out, bool bias) {
    const std::string name = fmt::format("{} {}", model.name, part);
    const Gelu gelu = !model.gpt ? Gelu::none : part == "up" ? Gelu::of_y : part == "down" ? Gelu::of_dx : Gelu::none;
    measure_layer(bench, name, tokens, in, out, bias, false, gelu);
    if (part != "head") measure_layer(bench, name, tokens, in, out, bias, true, gelu);
  };
  // Biases of the second matmuls are added after the reduction over ranks.
  layer("qkv", hidden, hidden + 2 * kv, model.gpt);
  layer("out", hidden, hidden, false);
  layer("up", hidden, model.gpt ? ffn : 2 * ffn, model.gpt);
  layer("down", ffn, hidden, false);
  layer("head", hidden, vocabulary, false);
}

struct Attention {
  std::int64_t batch, seq, heads, kv_heads, head_dim;
};
constexpr Attention kAttentions[] = {{1, 8192, 32, 8, 128}, {8, 1024, 25, 25, 64}, {1, 2048, 96, 96, 128}};

// q, k and v as columns of one matrix; likewise their gradients.
template <class Row>
Row attention_of(Tensors& t, const Attention& a, std::int64_t window) {
  const std::int64_t tokens = a.batch * a.seq, q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
  const Tensor qkv = t.normal(kBf16, tokens, q + 2 * kv);
  Row op;
  op.q = qkv.slice_cols(0, q), op.k = qkv.slice_cols(q, kv), op.v = qkv.slice_cols(q + kv, kv);
  op.batch = a.batch, op.seq = a.seq, op.heads = a.heads, op.kv_heads = a.kv_heads, op.head_dim = a.head_dim;
  op.window = window;
  op.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(a.head_dim)));
  op.o = t.zeros(kBf16, tokens, q);
  op.lse = t.zeros(kF32, a.batch * a.heads, a.seq);
  return op;
}
Op backward_of(Tensors& t, const Attention& a, std::int64_t window) {
  const auto forward = attention_of<AttentionFwd>(t, a, window);
  t.stream().submit(forward);
  auto op = attention_of<AttentionBwd>(t, a, window);
  op.q = forward.q, op.k = forward.k, op.v = forward.v, op.o = forward.o, op.lse = forward.lse;
  const Tensor dqkv = t.zeros(kBf16, op.q.rows, op.q.ld);
  op.dq = dqkv.slice_cols(0, op.q.cols);
  op.dk = dqkv.slice_cols(op.q.cols, op.k.cols);
  op.dv = dqkv.slice_cols(op.q.cols + op.k.cols, op.k.cols);
  op.dout = t.normal(kBf16, op.o.rows, op.o.cols);
  op.delta = t.zeros(kF32, op.lse.rows, op.lse.cols);
  return op;
}

void measure_attention(Bench& bench, Attention a, bool forward = true) {
  const std::int64_t window = bench.size(1024);
  if (bench.small) {
    const std::int64_t sharing = a.heads / a.kv_heads;
    a.seq = bench.size(a.seq), a.kv_heads = (a.kv_heads + 31) / 32, a.heads = a.kv_heads * sharing;
    a.batch = std::min<std::int64_t>(a.batch, 2);
  }
  for (const std::int64_t w : {std::int64_t{0}, window}) {
    if (w >= a.seq) continue;  // equal to no window
    const std::string shape = fmt::format("{}x{} heads {}/{} of {}", a.batch, a.seq, a.heads, a.kv_heads, a.head_dim);
    const std::string remark = w > 0 ? fmt::format("window {}", w) : "";
    if (forward) {
      bench.computes({.shape = shape, .remark = remark, .make = [=](Tensors& t) -> Op {
                        return attention_of<AttentionFwd>(t, a, w);
                      }});
    }
    bench.computes({.shape = shape, .remark = remark, .make = [=](Tensors& t) -> Op { return backward_of(t, a, w); }});
  }
}

}  // namespace

void measure_gemms(Bench& bench) {
  bench.section("products", "shares of the best product's rate; rows x out x in of a layer");
  for (const Model& model : kModels) measure_model(bench, model);
  bench.section("attention", "shares of the best product's rate; of the pairs that the mask leaves");
  for (const Attention& attention : kAttentions) measure_attention(bench, attention);
}

void measure_unordered(Bench& bench) {
  bench.section("attention, unordered", "run.deterministic = false; shares as above");
  for (const Attention& attention : kAttentions) measure_attention(bench, attention, false);
}

}  // namespace ms::tensor::bench
