// gpu_bench: ops that are limited by memory, at the shapes of training. Bytes are those that cannot be avoided: each
// input read once, each output written once, accumulated outputs both.
#include <algorithm>
#include <cmath>
#include <random>
#include <string_view>

#include "bench.h"

namespace ms::tensor::bench {
namespace {

constexpr std::int64_t kRows = 16384, kVocabulary = 128256, kHeadDim = 128, kSequence = 8192, kPositions = 2048;

std::string shape_of(std::int64_t rows, std::int64_t cols, DType dtype = kBf16) {
  return fmt::format("{} {}x{}", to_string(dtype), rows, cols);
}

// Returns `op` with its shape and bytes; Make is Op(Tensors&).
template <class Make>
Case at(std::string shape, Make make, std::string remark = {}, double bytes = 0) {
  return {.shape = std::move(shape), .remark = std::move(remark), .make = std::move(make), .bytes = bytes};
}

Tensor amax_of(Tensors& make, std::string_view remark) {
  return remark.ends_with("amax") ? make.zeros(kF32, 1, 1) : Tensor{};
}

void measure_norms(Bench& bench, std::int64_t rows, std::int64_t cols) {
  const std::string shape = shape_of(rows, cols);
  const auto x = [=](Tensors& make) { return make.normal(kBf16, rows, cols); };
  const auto by_col = [=](Tensors& make) { return make.normal(kBf16, 1, cols); };
  const auto sum = [=](Tensors& make) { return make.zeros(kF32, 1, cols); };
  const auto by_row = [=](Tensors& make, float value) { return make.filled(kF32, 1, rows, value); };
  for (const char* remark : {"", "of a sum", "of a sum, amax"}) {
    const bool of_sum = *remark != 0;
    bench.moves(at(
        shape,
        [=](Tensors& t) -> Op {
          const Residual residual = of_sum ? Residual{x(t), x(t), {}} : Residual{};
          return RmsNormFwd{.y = x(t),
                            .rstd = by_row(t, 1),
                            .x = x(t),
                            .gain = by_col(t),
                            .residual = residual,
                            .amax = amax_of(t, remark)};
        },
        remark));
  }
  for (const char* remark : {"", "+=", "+=, amax"}) {
    const bool accumulate = *remark != 0;
    bench.moves(at(
        shape,
        [=](Tensors& t) -> Op {
          return RmsNormBwd{.dx = x(t),
                            .dgain = sum(t),
                            .dy = x(t),
                            .x = x(t),
                            .rstd = by_row(t, 1),
                            .gain = by_col(t),
                            .accumulate = accumulate,
                            .amax = amax_of(t, remark)};
        },
        remark));
  }
  for (const bool of_sum : {false, true}) {
    bench.moves(at(
        shape,
        [=](Tensors& t) -> Op {
          return LayerNormFwd{.y = x(t),
                              .mean = by_row(t, 0),
                              .rstd = by_row(t, 1),
                              .x = x(t),
                              .gain = by_col(t),
                              .bias = by_col(t),
                              .residual = of_sum ? Residual{x(t), x(t), by_col(t)} : Residual{}};
        },
        of_sum ? "of a sum" : ""));
  }
  for (const bool accumulate : {false, true}) {
    bench.moves(at(
        shape,
        [=](Tensors& t) -> Op {
          return LayerNormBwd{.dx = x(t),
                              .dgain = sum(t),
                              .dbias = sum(t),
                              .dy = x(t),
                              .x = x(t),
                              .mean = by_row(t, 0),
                              .rstd = by_row(t, 1),
                              .gain = by_col(t),
                              .accumulate = accumulate};
        },
        accumulate ? "+=" : ""));
  }
}

void measure_activations(Bench& bench, std::int64_t rows, std::int64_t ffn) {
  const std::string shape = shape_of(rows, ffn);
  const auto one = [=](Tensors& make) { return make.normal(kBf16, rows, ffn); };
  const auto two = [=](Tensors& make) { return make.normal(kBf16, rows, 2 * ffn); };
  bench.moves(at(shape, [=](Tensors& t) -> Op { return GeluFwd{.y = one(t), .x = one(t)}; }));
  bench.moves(at(shape, [=](Tensors& t) -> Op { return GeluBwd{.dx = one(t), .dy = one(t), .x = one(t)}; }));
  for (const char* remark : {"", "amax"}) {
    const auto amax = [=](Tensors& t) { return amax_of(t, remark); };
    const auto forward = [=](Tensors& t) -> Op { return SwigluFwd{.y = one(t), .x = two(t), .amax = amax(t)}; };
    bench.moves(at(shape, forward, remark));
    bench.moves(at(
        shape, [=](Tensors& t) -> Op { return SwigluBwd{.dx = two(t), .dy = one(t), .x = two(t), .amax = amax(t)}; },
        remark));
  }
}

void measure_elementwise(Bench& bench, std::int64_t rows, std::int64_t cols, std::int64_t kv) {
  const std::string shape = shape_of(rows, cols);
  const auto x = [=](Tensors& make) { return make.normal(kBf16, rows, cols); };
  // Queries and keys in place: between each other's columns.
  const std::int64_t seq = bench.size(kSequence);
  for (const bool keys : {false, true}) {
    for (const bool inverse : {false, true}) {
      bench.moves(at(
          fmt::format("{} of {}", shape_of(rows, keys ? kv : cols), cols + 2 * kv),
          [=](Tensors& t) -> Op {
            const Tensor table = t.zeros(kF32, seq, kHeadDim);
            t.stream().submit(RotaryTable{.table = table});
            const Tensor qkv = t.normal(kBf16, rows, cols + 2 * kv);
            return Rotary{.x = keys ? qkv.slice_cols(cols, kv) : qkv.slice_cols(0, cols),
                          .table = table,
                          .seq = seq,
                          .head_dim = kHeadDim,
                          .inverse = inverse};
          },
          fmt::format("{}{}", keys ? "keys" : "queries", inverse ? " back" : "")));
    }
  }
  for (const bool bias : {false, true}) {
    bench.moves(at(
        shape,
        [=](Tensors& t) -> Op {
          return Add{.y = x(t), .a = x(t), .b = x(t), .bias = bias ? t.normal(kBf16, 1, cols) : Tensor{}};
        },
        bias ? "bias" : ""));
  }
  bench.moves(at(shape, [=](Tensors& t) -> Op { return ColumnSum{.out = t.zeros(kF32, 1, cols), .x = x(t)}; }));
}

// Draws rows of a vocabulary: all different, or with word frequencies (the r-th at 1/r of the first's rate).
std::vector<std::int32_t> draw_tokens(std::int64_t count, std::int64_t vocabulary, bool zipf) {
  std::mt19937_64 random(1);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count)), words(static_cast<std::size_t>(vocabulary));
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::int32_t>(i);
  std::shuffle(words.begin(), words.end(), random);
  std::uniform_real_distribution<double> uniform(0, std::log(static_cast<double>(vocabulary)));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto rank = zipf ? static_cast<std::size_t>(std::exp(uniform(random))) - 1 : i;
    tokens[i] = words[rank % words.size()];
  }
  return tokens;
}
std::int64_t distinct(std::vector<std::int32_t> tokens) {
  std::sort(tokens.begin(), tokens.end());
  return std::unique(tokens.begin(), tokens.end()) - tokens.begin();
}

// Counts each selected row of a table once, however often it occurs: cost_of() assumes that every token selects its
// own.
void measure_embeddings(Bench& bench, std::int64_t rows, std::int64_t cols) {
  const auto bytes = [=](std::int64_t times, std::int64_t table_rows, std::int64_t table_bytes) {
    return static_cast<double>(times * rows * cols * 2 + table_rows * cols * table_bytes);
  };
  const std::int64_t vocabulary = bench.size(kVocabulary), seq = bench.size(kPositions);
  for (const bool zipf : {false, true}) {
    const std::vector<std::int32_t> tokens = draw_tokens(rows, vocabulary, zipf);
    const std::int64_t named = distinct(tokens);
    const std::string shape = shape_of(rows, cols), remark = zipf ? "Zipf" : "all different";
    bench.moves(at(
        shape,
        [=](Tensors& t) -> Op {
          return EmbeddingFwd{
              .y = t.zeros(kBf16, rows, cols), .table = t.normal(kBf16, vocabulary, cols), .tokens = t.numbers(tokens)};
        },
        remark, bytes(1, named, 2)));
    bench.moves(at(
        shape,
        [=](Tensors& t) -> Op {
          return EmbeddingBwd{.dtable = t.zeros(kF32, vocabulary, cols),
                              .dy = t.normal(kBf16, rows, cols),
                              .tokens = t.numbers(tokens)};
        },
        remark, bytes(1, named, 2 * 4)));
  }
  const std::string shape = fmt::format("{} seq {}", shape_of(rows, cols), seq);
  bench.moves(at(
      shape,
      [=](Tensors& t) -> Op {
        return PositionFwd{.y = t.normal(kBf16, rows, cols), .table = t.normal(kBf16, seq, cols)};
      },
      {}, bytes(2, seq, 2)));
  bench.moves(at(
      shape,
      [=](Tensors& t) -> Op {
        return PositionBwd{.dtable = t.zeros(kF32, seq, cols), .dy = t.normal(kBf16, rows, cols)};
      },
      {}, bytes(1, seq, 2 * 4)));
}

void measure_loss(Bench& bench, std::int64_t rows, std::int64_t cols, std::int64_t valid) {
  const std::string shape = fmt::format("{} valid {}", shape_of(rows, cols), valid);
  const auto logits = [=](Tensors& make) { return make.normal(kBf16, rows, cols); };
  const auto targets = [=](Tensors& make) { return make.numbers(draw_tokens(rows, valid, false)); };
  bench.moves(at(shape, [=](Tensors& t) -> Op {
    return LossStats{.stats = t.zeros(kF32, 3, rows), .logits = logits(t), .targets = targets(t), .valid = valid};
  }));
  bench.moves(at(shape, [=](Tensors& t) -> Op {
    const float lse = std::log(static_cast<float>(valid)) + 0.5F;  // for normal logits
    return LossBackward{
        .logits = logits(t), .lse = t.filled(kF32, 1, rows, lse), .targets = targets(t), .valid = valid, .scale = 1};
  }));
}

void measure_combining(Bench& bench, std::int64_t rows) {
  for (const std::int64_t shards : {1, 8}) {
    bench.moves(at(fmt::format("{} shards of {}", shards, rows), [=](Tensors& t) -> Op {
      return LossCombine{.loss = t.zeros(kF32, 1, rows),
                         .lse = t.zeros(kF32, 1, rows),
                         .gathered = t.filled(kF32, 3 * shards, rows, 2),
                         .targets = t.zeros(DType::i32, 1, rows)};
    }));
  }
}

void measure_flat(Bench& bench, std::int64_t n) {
  const auto f32 = [=](Tensors& make) { return make.normal(kF32, 1, n); };
  const auto bf16 = [=](Tensors& make) { return make.normal(kBf16, 1, n); };
  const auto scalar = [](Tensors& make) { return make.zeros(DType::f64, 1, 1); };
  const std::string shape = shape_of(1, n, kF32);
  bench.moves(at(
      shape, [=](Tensors& t) -> Op { return Copy{.dst = t.zeros(kBf16, 1, n), .src = f32(t)}; }, "to bf16"));
  bench.moves(at(
      shape, [=](Tensors& t) -> Op { return Copy{.dst = t.zeros(kF32, 1, n), .src = bf16(t)}; }, "of bf16"));
  bench.moves(at(shape, [=](Tensors& t) -> Op { return Fill{.x = t.zeros(kF32, 1, n), .value = 0}; }));
  bench.moves(at(shape_of(1, n), [=](Tensors& t) -> Op { return Fill{.x = t.zeros(kBf16, 1, n), .value = 0}; }));
  bench.moves(at(shape, [=](Tensors& t) -> Op { return Add{.y = f32(t), .a = f32(t), .b = f32(t), .bias = {}}; }));
  bench.moves(at(shape, [=](Tensors& t) -> Op { return SumInto{.out = scalar(t), .x = f32(t)}; }));
  bench.moves(at(shape, [=](Tensors& t) -> Op { return SumSquares{.out = scalar(t), .x = f32(t)}; }));
  bench.moves(at("1x1", [=](Tensors& t) -> Op {
    return ClipFactor{.factor = t.zeros(kF32, 1, 1),
                      .norm = t.zeros(kF32, 1, 1),
                      .sum_squares = t.filled(DType::f64, 1, 1, 4),
                      .max_norm = 1};
  }));
}

// Learning rates that change almost nothing, however often the step is repeated.
template <class Update>
Update update_of(Tensors& t, std::int64_t n, bool master) {
  Update op;
  op.param = t.normal(master ? kBf16 : kF32, 1, n);
  if (master) op.master = t.normal(kF32, 1, n);
  op.m = t.normal(kF32, 1, n);
  op.v = t.filled(kF32, 1, n, 1);
  op.factor = t.filled(kF32, 1, 1, 1);
  op.lr = 1e-6F, op.eps = 1e-8F, op.weight_decay = 0.1F;
  return op;
}
void measure_optimizers(Bench& bench, std::int64_t n) {
  for (const bool master : {true, false}) {
    const std::string shape = fmt::format("1x{}", n), remark = master ? "bf16, f32 master" : "f32";
    bench.moves(at(
        shape,
        [=](Tensors& t) -> Op {
          auto op = update_of<AdamW>(t, n, master);
          op.grad = t.normal(kF32, 1, n);
          op.beta1 = 0.9F, op.beta2 = 0.95F;
          return op;
        },
        remark));
    bench.moves(at(
        shape,
        [=](Tensors& t) -> Op {
          auto op = update_of<LambApply>(t, n, master);
          op.norms = t.filled(DType::f64, 1, 2, 1);
          return op;
        },
        remark));
  }
  for (const bool norms : {true, false}) {
    bench.moves(at(
        fmt::format("1x{}", n),
        [=](Tensors& t) -> Op {
          return LambMoments{.norms = norms ? t.zeros(DType::f64, 1, 2) : Tensor{},
                             .m = t.normal(kF32, 1, n),
                             .v = t.filled(kF32, 1, n, 1),
                             .w = t.normal(kF32, 1, n),
                             .grad = t.normal(kF32, 1, n),
                             .factor = t.filled(kF32, 1, 1, 1),
                             .beta1 = 0.9F,
                             .beta2 = 0.95F,
                             .eps = 1e-8F,
                             .weight_decay = 0.1F};
        },
        norms ? "" : "without norms"));
  }
}

}  // namespace

void measure_memory(Bench& bench) {
  bench.section("memory", "shares of the copy's bandwidth");
  const std::int64_t rows = bench.size(kRows);
  struct Width {
    std::int64_t hidden, ffn, kv;
  };
  for (const Width& full : {Width{1600, 6400, 1600}, Width{4096, 14336, 1024}, Width{12288, 49152, 12288}}) {
    const auto whole_heads = [&](std::int64_t cols) { return (bench.size(cols) + kHeadDim - 1) / kHeadDim * kHeadDim; };
    const std::int64_t hidden = whole_heads(full.hidden);
    measure_norms(bench, rows, hidden);
    measure_activations(bench, rows, bench.size(full.ffn));
    measure_elementwise(bench, rows, hidden, whole_heads(full.kv));
    measure_embeddings(bench, rows, hidden);
  }
  const std::int64_t vocabulary = bench.size(kVocabulary), padded = bench.size(50304);
  measure_loss(bench, rows, vocabulary, vocabulary);
  measure_loss(bench, rows, padded, bench.small ? padded - 3 : 50257);  // GPT-2's vocabulary, with padding
  measure_combining(bench, rows);
  const std::int64_t n = bench.small ? 1 << 18 : 1 << 28;
  measure_flat(bench, n);
  measure_optimizers(bench, n);
}

}  // namespace ms::tensor::bench
