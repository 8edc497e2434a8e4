// The speed of the CPU ops at the shapes of a GPT of 124 million parameters: 2048 tokens, hidden 768, 12 heads of 64,
// 50304 words. Arguments: type (0 f32, 1 bf16) and threads. Rates count mathematical operations (a causal pair counts,
// a masked one does not), or bytes that must be read and written at least once.
#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensor/cpu_device.h"
#include "tensor/cpu_kernels.h"
#include "tensor/cpu_matmul.h"
#include "tensor/team.h"

namespace ms::tensor {
namespace {

constexpr std::int64_t kTokens = 2048, kHidden = 768, kHeads = 12, kHeadDim = 64, kVocabulary = 50304;

// Tensors in memory of the CPU device, as the engine's are.
class Tensors {
 public:
  Tensor operator()(DType dtype, std::int64_t rows, std::int64_t cols) {
    blocks_.push_back(device_.allocate(static_cast<std::size_t>(rows * cols * size_of(dtype)), "a tensor"));
    const Tensor x{blocks_.back()->data(), rows, cols, cols, dtype};
    cpu_kernels().run(dtype == DType::i32
                          ? Op(Fill{.x = x})
                          : Op(InitNormal{.x = x, .seed = blocks_.size(), .global_cols = cols, .valid_rows = rows}));
    return x;
  }

 private:
  CpuPool pool_{{.workers = 1, .threads_per_op = 1}};
  MatmulCache matmuls_;
  CpuDevice device_{pool_, matmuls_};
  std::vector<std::unique_ptr<Memory>> blocks_;
};

DType type_of(const benchmark::State& state) { return state.range(0) == 1 ? DType::bf16 : DType::f32; }

void repeat(benchmark::State& state, const std::function<void()>& run, const char* unit, double amount) {
  set_team_threads(static_cast<int>(state.range(1)));
  run();
  for (auto _ : state) run();
  state.counters[unit] = benchmark::Counter(amount * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}
void repeat_op(benchmark::State& state, const Op& op, const char* unit, double amount) {
  repeat(
      state, [&] { cpu_kernels().run(op); }, unit, amount);
}
double bytes(std::initializer_list<Tensor> tensors) {
  double total = 0;
  for (const Tensor& x : tensors) total += static_cast<double>(x.size_bytes());
  return total;
}

void matmul(benchmark::State& state, std::int64_t m, std::int64_t n, std::int64_t k, int form) {
  Tensors memory;
  MatmulCache cache;
  const DType type = type_of(state);
  const bool transpose_a = form == 2, transpose_b = form == 1;
  const Matmul op{.c = memory(form == 2 ? DType::f32 : type, m, n),
                  .a = transpose_a ? memory(type, k, m) : memory(type, m, k),
                  .b = transpose_b ? memory(type, n, k) : memory(type, k, n),
                  .bias = {},
                  .transpose_a = transpose_a,
                  .transpose_b = transpose_b,
                  .accumulate = form == 2};
  repeat(
      state, [&] { cache.run(op); }, "GFLOP/s",
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
}

// The experts of configs/moe-small.toml: 16 with 136 to 376 slots each, up [1536,512] and down [512,768] of each.
void grouped_matmul(benchmark::State& state, std::int64_t n, std::int64_t k, int form) {
  constexpr std::int64_t kExperts = 16, kSlots = 2 * kTokens;
  Tensors memory;
  MatmulCache cache;
  const DType type = type_of(state);
  const Tensor offsets = memory(DType::i32, 1, kExperts + 1);
  for (std::int64_t e = 0; e <= kExperts; ++e)
    offsets.as<std::int32_t>()[e] = static_cast<std::int32_t>(e * (128 + 8 * e));
  const Tensor weights = memory(form == 2 ? DType::f32 : type, kExperts * n, k);
  const Tensor wide = memory(type, kSlots, n), narrow = memory(type, kSlots, k);
  const GroupedMatmul op{.c = form == 2   ? weights
                              : form == 1 ? wide
                                          : narrow,
                         .a = form == 1 ? narrow : wide,
                         .b = form == 2 ? narrow : weights,
                         .offsets = offsets,
                         .transpose_a = form == 2,
                         .transpose_b = form == 1};
  repeat(
      state, [&] { cache.run(op); }, "GFLOP/s", 2.0 * static_cast<double>(kSlots * n * k));
}

void attention(benchmark::State& state, bool backward) {
  Tensors memory;
  const DType type = type_of(state);
  const std::int64_t seq = state.range(2), batch = kTokens / seq;
  const Tensor qkv = memory(type, kTokens, 3 * kHidden), grads = memory(type, kTokens, 3 * kHidden);
  const auto part = [](const Tensor& x, int i) { return x.slice_cols(i * kHidden, kHidden); };
  const AttentionFwd fwd{.o = memory(type, kTokens, kHidden),
                         .lse = memory(DType::f32, batch * kHeads, seq),
                         .q = part(qkv, 0),
                         .k = part(qkv, 1),
                         .v = part(qkv, 2),
                         .batch = batch,
                         .seq = seq,
                         .heads = kHeads,
                         .kv_heads = kHeads,
                         .head_dim = kHeadDim,
                         .window = 0,
                         .scale = 0.125F};
  const AttentionBwd bwd{.dq = part(grads, 0),
                         .dk = part(grads, 1),
                         .dv = part(grads, 2),
                         .dout = memory(type, kTokens, kHidden),
                         .o = fwd.o,
                         .lse = fwd.lse,
                         .q = fwd.q,
                         .k = fwd.k,
                         .v = fwd.v,
                         .delta = memory(DType::f32, batch * kHeads, seq),
                         .batch = batch,
                         .seq = seq,
                         .heads = kHeads,
                         .kv_heads = kHeads,
                         .head_dim = kHeadDim,
                         .window = 0,
                         .scale = 0.125F};
  const double pairs =
      static_cast<double>(batch * kHeads) * static_cast<double>(seq) * static_cast<double>(seq + 1) / 2;
  cpu_kernels().run(fwd);
  repeat_op(state, backward ? Op(bwd) : Op(fwd), "GFLOP/s",
            (backward ? 10.0 : 4.0) * static_cast<double>(kHeadDim) * pairs);
}

void layernorm_fwd(benchmark::State& state) {
  Tensors memory;
  const DType type = type_of(state);
  const LayerNormFwd op{.y = memory(type, kTokens, kHidden),
                        .mean = memory(DType::f32, 1, kTokens),
                        .rstd = memory(DType::f32, 1, kTokens),
                        .x = memory(type, kTokens, kHidden),
                        .gain = memory(type, 1, kHidden),
                        .bias = memory(type, 1, kHidden)};
  repeat_op(state, op, "GB/s", bytes({op.x, op.y}));
}
void layernorm_bwd(benchmark::State& state) {
  Tensors memory;
  const DType type = type_of(state);
  const LayerNormBwd op{.dx = memory(type, kTokens, kHidden),
                        .dgain = memory(DType::f32, 1, kHidden),
                        .dbias = memory(DType::f32, 1, kHidden),
                        .dy = memory(type, kTokens, kHidden),
                        .x = memory(type, kTokens, kHidden),
                        .mean = memory(DType::f32, 1, kTokens),
                        .rstd = memory(DType::f32, 1, kTokens),
                        .gain = memory(type, 1, kHidden),
                        .accumulate = true};
  repeat_op(state, op, "GB/s", bytes({op.x, op.dy, op.dx, op.dx}));
}
void rmsnorm_fwd(benchmark::State& state) {
  Tensors memory;
  const DType type = type_of(state);
  const RmsNormFwd op{.y = memory(type, kTokens, kHidden),
                      .rstd = memory(DType::f32, 1, kTokens),
                      .x = memory(type, kTokens, kHidden),
                      .gain = memory(type, 1, kHidden)};
  repeat_op(state, op, "GB/s", bytes({op.x, op.y}));
}
void rmsnorm_bwd(benchmark::State& state) {
  Tensors memory;
  const DType type = type_of(state);
  const RmsNormBwd op{.dx = memory(type, kTokens, kHidden),
                      .dgain = memory(DType::f32, 1, kHidden),
                      .dy = memory(type, kTokens, kHidden),
                      .x = memory(type, kTokens, kHidden),
                      .rstd = memory(DType::f32, 1, kTokens),
                      .gain = memory(type, 1, kHidden),
                      .accumulate = true};
  repeat_op(state, op, "GB/s", bytes({op.x, op.dy, op.dx, op.dx}));
}
void swiglu_fwd(benchmark::State& state) {
  Tensors memory;
  const DType type = type_of(state);
  const SwigluFwd op{.y = memory(type, kTokens, 2 * kHidden), .x = memory(type, kTokens, 4 * kHidden)};
  repeat_op(state, op, "GB/s", bytes({op.x, op.y}));
}
void swiglu_bwd(benchmark::State& state) {
  Tensors memory;
  const DType type = type_of(state);
  const SwigluBwd op{.dx = memory(type, kTokens, 4 * kHidden),
                     .dy = memory(type, kTokens, 2 * kHidden),
                     .x = memory(type, kTokens, 4 * kHidden)};
  repeat_op(state, op, "GB/s", bytes({op.x, op.dy, op.dx}));
}
void gelu_fwd(benchmark::State& state) {
  Tensors memory;
  const DType type = type_of(state);
  const GeluFwd op{.y = memory(type, kTokens, 4 * kHidden), .x = memory(type, kTokens, 4 * kHidden)};
  repeat_op(state, op, "GB/s", bytes({op.x, op.y}));
}
void gelu_bwd(benchmark::State& state) {
  Tensors memory;
  const DType type = type_of(state);
  const GeluBwd op{.dx = memory(type, kTokens, 4 * kHidden),
                   .dy = memory(type, kTokens, 4 * kHidden),
                   .x = memory(type, kTokens, 4 * kHidden)};
  repeat_op(state, op, "GB/s", bytes({op.x, op.dy, op.dx}));
}
void add(benchmark::State& state) {
  Tensors memory;
  const DType type = type_of(state);
  const Add op{.y = memory(type, kTokens, 4 * kHidden),
               .a = memory(type, kTokens, 4 * kHidden),
               .b = memory(type, kTokens, 4 * kHidden),
               .bias = {}};
  repeat_op(state, op, "GB/s", bytes({op.y, op.a, op.b}));
}
void column_sum(benchmark::State& state) {
  Tensors memory;
  const ColumnSum op{.out = memory(DType::f32, 1, 4 * kHidden), .x = memory(type_of(state), kTokens, 4 * kHidden)};
  repeat_op(state, op, "GB/s", bytes({op.x}));
}
void loss_stats(benchmark::State& state) {
  Tensors memory;
  const LossStats op{.stats = memory(DType::f32, 3, kTokens / 4),
                     .logits = memory(type_of(state), kTokens / 4, kVocabulary),
                     .targets = memory(DType::i32, 1, kTokens / 4),
                     .first = 0,
                     .valid = kVocabulary};
  repeat_op(state, op, "GB/s", bytes({op.logits}));
}
void loss_bwd(benchmark::State& state) {
  Tensors memory;
  const LossBackward op{.logits = memory(type_of(state), kTokens / 4, kVocabulary),
                        .lse = memory(DType::f32, 1, kTokens / 4),
                        .targets = memory(DType::i32, 1, kTokens / 4),
                        .first = 0,
                        .valid = kVocabulary};
  repeat_op(state, op, "GB/s", bytes({op.logits, op.logits}));
}
void adamw(benchmark::State& state) {
  Tensors memory;
  const std::int64_t n = 7 * 1024 * 1024;  // the parameters of a layer
  const bool bf16 = type_of(state) == DType::bf16;
  AdamW op{.param = memory(type_of(state), 1, n),
           .master = bf16 ? memory(DType::f32, 1, n) : Tensor{},
           .m = memory(DType::f32, 1, n),
           .v = memory(DType::f32, 1, n),
           .grad = memory(DType::f32, 1, n),
           .factor = memory(DType::f32, 1, 1),
           .lr = 1e-6F,
           .beta1 = 0.9F,
           .beta2 = 0.95F,
           .eps = 1e-8F,
           .weight_decay = 0.1F};
  cpu_kernels().run(Fill{.x = op.v, .value = 1.0F});
  cpu_kernels().run(Fill{.x = op.factor, .value = 1.0F});
  const Tensor master = bf16 ? op.master : op.param;
  repeat_op(state, op, "GB/s",
            bytes({master, master, op.m, op.m, op.v, op.v, op.grad}) + (bf16 ? bytes({op.param}) : 0));
}
void sum_squares(benchmark::State& state) {
  Tensors memory;
  const SumSquares op{.out = memory(DType::f32, 1, 2).reshape(1, 2), .x = memory(DType::f32, 1, 7 * 1024 * 1024)};
  SumSquares wide = op;
  wide.out = {op.out.data, 1, 1, 1, DType::f64};
  repeat_op(state, wide, "GB/s", bytes({op.x}));
}

// The overhead of a call.
void matmul_overhead(benchmark::State& state) { matmul(state, 1, 16, 16, 1); }

// Every matmul of the model: y = x w', dx = dy w, dw += dy' x. cpu_peer.sh adds them up.
void register_gemms() {
  struct Layer {
    const char* name;
    std::int64_t out, in;
  };
  constexpr std::int64_t kWords = 50257;
  constexpr Layer kLayers[] = {{"qkv", 3 * kHidden, kHidden},
                               {"out", kHidden, kHidden},
                               {"up", 4 * kHidden, kHidden},
                               {"down", kHidden, 4 * kHidden},
                               {"head", kWords, kHidden}};
  for (const Layer& layer : kLayers) {
    const auto add = [&](const char* part, std::int64_t m, std::int64_t n, std::int64_t k, int form) {
      const std::string name = std::string("product/") + layer.name + "_" + part;
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { matmul(state, m, n, k, form); })
          ->ArgNames({"bf16", "threads"})
          ->ArgsProduct({{0, 1}, {1, 2}})
          ->Unit(benchmark::kNanosecond)
          ->MeasureProcessCPUTime()
          ->UseRealTime();
    };
    add("fwd", kTokens, layer.out, layer.in, 1);
    add("dx", kTokens, layer.in, layer.out, 0);
    add("dw", layer.out, layer.in, kTokens, 2);
  }
}

void arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"bf16", "threads"})->ArgsProduct({{0, 1}, {1, 2}})->UseRealTime();
}
void attention_arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"bf16", "threads", "seq"})->ArgsProduct({{0, 1}, {1, 2}, {512, 2048}})->UseRealTime();
}

BENCHMARK_CAPTURE(matmul, up, kTokens, 4 * kHidden, kHidden, 1)->Apply(arguments);
BENCHMARK_CAPTURE(matmul, up_dx, kTokens, kHidden, 4 * kHidden, 0)->Apply(arguments);
BENCHMARK_CAPTURE(matmul, up_dw, 4 * kHidden, kHidden, kTokens, 2)->Apply(arguments);
BENCHMARK_CAPTURE(matmul, small, 256, 256, 256, 1)->Apply(arguments);
BENCHMARK_CAPTURE(matmul, small_dw, 256, 256, 512, 2)->Apply(arguments);
BENCHMARK_CAPTURE(matmul, narrow_dw, 32, 64, 512, 2)->Apply(arguments);
BENCHMARK_CAPTURE(grouped_matmul, experts_up_fwd, 1536, 512, 1)->Apply(arguments);
BENCHMARK_CAPTURE(grouped_matmul, experts_up_dx, 1536, 512, 0)->Apply(arguments);
BENCHMARK_CAPTURE(grouped_matmul, experts_up_dw, 1536, 512, 2)->Apply(arguments);
BENCHMARK_CAPTURE(grouped_matmul, experts_down_fwd, 512, 768, 1)->Apply(arguments);
BENCHMARK_CAPTURE(grouped_matmul, experts_down_dx, 512, 768, 0)->Apply(arguments);
BENCHMARK_CAPTURE(grouped_matmul, experts_down_dw, 512, 768, 2)->Apply(arguments);
BENCHMARK(matmul_overhead)->Apply(arguments);
BENCHMARK_CAPTURE(attention, attention_fwd, false)->Apply(attention_arguments);
BENCHMARK_CAPTURE(attention, attention_bwd, true)->Apply(attention_arguments);
BENCHMARK(layernorm_fwd)->Apply(arguments);
BENCHMARK(layernorm_bwd)->Apply(arguments);
BENCHMARK(rmsnorm_fwd)->Apply(arguments);
BENCHMARK(rmsnorm_bwd)->Apply(arguments);
BENCHMARK(swiglu_fwd)->Apply(arguments);
BENCHMARK(swiglu_bwd)->Apply(arguments);
BENCHMARK(gelu_fwd)->Apply(arguments);
BENCHMARK(gelu_bwd)->Apply(arguments);
BENCHMARK(add)->Apply(arguments);
BENCHMARK(column_sum)->Apply(arguments);
BENCHMARK(loss_stats)->Apply(arguments);
BENCHMARK(loss_bwd)->Apply(arguments);
BENCHMARK(adamw)->Apply(arguments);
BENCHMARK(sum_squares)->Apply(arguments);

}  // namespace
}  // namespace ms::tensor

int main(int argc, char** argv) {
  ms::tensor::register_gemms();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
