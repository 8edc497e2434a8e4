// A backward split in two halves gives the same bits as the whole one: the gradient of every parameter, the gradient
// that the previous stage waits for, and the loss. On a chunk that is a whole model, with two microbatches in flight.
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <numeric>

#include "base/rng.h"
#include "training_case.h"

namespace ms::testing_case {
namespace {

using tensor::Arena;
using tensor::DType;
using tensor::Tensor;

constexpr int kMicrobatches = 2;

// The order of the halves of two microbatches; `whole` is backward().
enum class Order { whole, halves_in_turn, second_halves_last, mixed };

struct Rank {
  std::vector<nn::SpanTensors> spans;
  nn::LayerScratch scratch;
  nn::ChunkSlot slots[kMicrobatches];
  nn::HeadScratch head;
  nn::Microbatch input[kMicrobatches];
  Tensor dx[kMicrobatches];
  Tensor rotary, loss;
};

Rank carve(Arena& arena, const train::Plan& plan, const nn::Shape& shape) {
  Rank rank;
  for (nn::SpanSpec& spec : plan.spans(0, shape.tp_rank, 0)) {
    const Tensor values = arena.take(shape.dtype, 1, spec.numel), grads = arena.take(DType::f32, 1, spec.numel);
    rank.spans.push_back({std::move(spec), values, grads});
  }
  const nn::ChunkPart part = plan.part(0, 0);
  rank.scratch = nn::carve_scratch(arena, shape, nn::kinds_of(*shape.model, {&part, 1}));
  for (int i = 0; i < kMicrobatches; ++i) {
    rank.slots[i] = nn::carve_slot(arena, shape, {&part, 1}, rank.scratch);
    rank.input[i] = {arena.take(DType::i32, 1, shape.tokens()), arena.take(DType::i32, 1, shape.tokens())};
    rank.dx[i] = arena.take(shape.dtype, shape.shard_tokens(), shape.model->hidden);
  }
  rank.head = nn::carve_head(arena, shape);
  rank.rotary = nn::carve_rotary(arena, shape);
  rank.loss = arena.take(DType::f64, 1, 1);
  return rank;
}

template <class T>
void upload(tensor::Stream& stream, const Tensor& to, std::vector<T> values, DType dtype) {
  const Tensor host{reinterpret_cast<std::byte*>(values.data()), 1, to.numel(), to.numel(), dtype};
  stream.submit(tensor::Copy{to.flat(), host});
  stream.synchronize();
}

void fill(tensor::Stream& stream, const train::Plan& plan, const Rank& rank) {
  for (const nn::SpanTensors& span : rank.spans) {
    std::vector<float> values(static_cast<std::size_t>(span.spec.numel));
    for (const nn::ParamSpec& param : span.spec.params) {
      const bool gain = param.init == nn::Init::ones;
      for (std::int64_t i = 0; i < param.numel(); ++i) {
        values[static_cast<std::size_t>(param.offset + i)] =
            (gain ? 1.0F : 0.0F) + 0.1F * normal(3, rng_key(param.shard.name), static_cast<std::uint64_t>(i));
      }
    }
    upload(stream, span.values, values, DType::f32);
  }
  for (int i = 0; i < kMicrobatches; ++i) {
    std::vector<std::int32_t> tokens, targets;
    fill_batch(plan, i, 0, tokens, targets);
    upload(stream, rank.input[i].tokens, tokens, DType::i32);
    upload(stream, rank.input[i].targets, targets, DType::i32);
  }
}

void add_bytes(tensor::Stream& stream, const Tensor& x, std::vector<std::byte>& into) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(x.size_bytes()));
  stream.submit(tensor::Copy{{bytes.data(), 1, x.numel(), x.numel(), x.dtype}, x.flat()});
  stream.synchronize();
  into.insert(into.end(), bytes.begin(), bytes.end());
}

// The results of a rank: gradients, the dx of every microbatch, the loss.
std::vector<std::byte> run_rank(const train::Plan& plan, comm::World& world, tensor::Device& device, bool split,
                                Order order) {
  nn::Shape shape = plan.shape(world.rank());
  shape.split_backward = split;
  Arena measured = Arena::measuring();
  carve(measured, plan, shape);
  const auto memory = device.allocate(static_cast<std::size_t>(measured.used_bytes()), "a chunk");
  Arena arena(*memory);
  Rank rank = carve(arena, plan, shape);
  const auto compute = device.make_stream("compute", tensor::StreamKind::compute);
  const auto tp_stream = device.make_stream("tp", tensor::StreamKind::comm);
  comm::Group group{"tp", 1, std::vector<int>(static_cast<std::size_t>(world.size()))};
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  const auto tp = world.open(group, *tp_stream);
  if (rank.rotary) compute->submit(tensor::RotaryTable{rank.rotary});
  fill(*compute, plan, rank);

  const nn::Chunk chunk(shape, plan.part(0, 0), rank.spans, rank.rotary);
  const nn::TensorParallel on{*compute, *tp, shape};
  const auto whole_backward = [&](int i) {
    chunk.backward(on, rank.slots[i], rank.input[i], rank.scratch, rank.head, rank.dx[i], rank.loss, 0.25);
  };
  const auto input_half = [&](int i) {
    chunk.backward_input(on, rank.slots[i], rank.input[i], rank.scratch, rank.head, rank.dx[i], rank.loss, 0.25);
  };
  const auto weight_half = [&](int i) { chunk.backward_weight(on, rank.slots[i], rank.scratch); };
  for (int i = 0; i < kMicrobatches; ++i) chunk.forward(on, rank.slots[i], rank.input[i], rank.scratch);
  for (int i = 0; i < kMicrobatches; ++i) {
    const bool whole = order == Order::whole || (order == Order::mixed && i == 0);
    if (whole) {
      whole_backward(i);
    } else {
      input_half(i);
      if (order != Order::second_halves_last) weight_half(i);
    }
  }
  for (int i = 0; i < kMicrobatches && order == Order::second_halves_last; ++i) weight_half(i);

  std::vector<std::byte> bytes;
  for (const nn::SpanTensors& span : rank.spans) add_bytes(*compute, span.grads, bytes);
  for (const Tensor& dx : rank.dx) add_bytes(*compute, dx, bytes);
  add_bytes(*compute, rank.loss, bytes);
  return bytes;
}

using Bytes = std::vector<std::vector<std::byte>>;  // by rank

Bytes run(const train::Settings& settings, bool split, Order order) {
  Bytes bytes(static_cast<std::size_t>(settings.mesh.tp));
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    bytes[static_cast<std::size_t>(world.rank())] = run_rank(plan, world, device, split, order);
  });
  return bytes;
}

class SplitBackward : public testing::TestWithParam<std::tuple<std::string, bool, std::string>> {};

TEST_P(SplitBackward, HasTheBitsOfTheWhole) {
  const auto& [family, parallel_block, recompute] = GetParam();
  train::Settings settings = tiny_settings(family);
  settings.model.layers = 2;
  settings.model.tied_embeddings = true;  // head and embedding accumulate into one gradient
  settings.model.parallel_block = parallel_block;
  settings.model.window = 6;
  settings.train.recompute = recompute;
  settings.train.global_batch = 1;
  for (const auto& [tp, sequence_parallel, dtype, fused] : {std::tuple{1, true, "fp32", true},
                                                            {2, true, "bf16", true},
                                                            {4, true, "fp32", false},
                                                            {2, false, "fp32", true}}) {
    settings.mesh.tp = tp;
    settings.mesh.sequence_parallel = sequence_parallel;
    settings.train.dtype = dtype;
    settings.model.fused = fused;
    const Bytes whole = run(settings, false, Order::whole);
    ASSERT_FALSE(whole.front().empty());
    for (const Order order : {Order::whole, Order::halves_in_turn, Order::second_halves_last, Order::mixed}) {
      EXPECT_TRUE(run(settings, true, order) == whole)
          << "tp " << tp << (sequence_parallel ? " sp " : " ") << dtype << ", order " << static_cast<int>(order);
    }
  }
}

std::string split_name(const testing::TestParamInfo<SplitBackward::ParamType>& info) {
  const auto& [family, parallel_block, recompute] = info.param;
  return family + (parallel_block ? "_parallel_" : "_") + recompute;
}
INSTANTIATE_TEST_SUITE_P(Models, SplitBackward,
                         testing::Combine(testing::Values("gpt", "llama", "neox"), testing::Bool(),
                                          testing::Values("none", "selective", "full")),
                         split_name);
INSTANTIATE_TEST_SUITE_P(Experts, SplitBackward,
                         testing::Combine(testing::Values("moe", "dots"), testing::Values(false),
                                          testing::Values("none", "selective", "full")),
                         split_name);

// The first half alone does not touch the gradients of a layer's matmul weights; both halves do.
TEST(SplitBackwardHalves, FirstHalfDoesNotTouchWeightGradients) {
  train::Settings settings = tiny_settings("gpt");
  settings.model.layers = 1;
  settings.train.global_batch = 1;
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    nn::Shape shape = plan.shape(0);
    shape.split_backward = true;
    Arena measured = Arena::measuring();
    carve(measured, plan, shape);
    const auto memory = device.allocate(static_cast<std::size_t>(measured.used_bytes()), "a chunk");
    Arena arena(*memory);
    Rank rank = carve(arena, plan, shape);
    const auto compute = device.make_stream("compute", tensor::StreamKind::compute);
    const auto tp_stream = device.make_stream("tp", tensor::StreamKind::comm);
    const auto tp = world.open({"tp", 1, {0}}, *tp_stream);
    fill(*compute, plan, rank);
    const nn::Chunk chunk(shape, plan.part(0, 0), rank.spans, rank.rotary);
    const nn::TensorParallel on{*compute, *tp, shape};
    const auto untouched = [&] {
      std::vector<std::string> names;
      for (const nn::ParamSpec& param : rank.spans.back().spec.params) {
        std::vector<std::byte> bytes;
        add_bytes(*compute, rank.spans.back().grads.slice_cols(param.offset, param.numel()), bytes);
        const bool zero = std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{}; });
        if (zero) names.push_back(param.shard.name);
      }
      return names;
    };
    chunk.forward(on, rank.slots[0], rank.input[0], rank.scratch);
    chunk.backward_input(on, rank.slots[0], rank.input[0], rank.scratch, rank.head, rank.dx[0], rank.loss, 1.0);
    EXPECT_EQ(untouched().size(), 12U);  // q, k, v, out, up, down: weights and biases
    for (const std::string& name : untouched()) {
      EXPECT_TRUE(name.starts_with("layers.0.attn.") || name.starts_with("layers.0.mlp.")) << name;
    }
    chunk.backward_weight(on, rank.slots[0], rank.scratch);
    EXPECT_EQ(untouched().size(), 0U);
  });
}

}  // namespace
}  // namespace ms::testing_case
