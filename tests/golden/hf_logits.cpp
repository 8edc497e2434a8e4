#include "hf_logits.h"

#include <chrono>
#include <cstring>

#include "comm/thread_world.h"
#include "nn/chunk.h"
#include "tensor/cpu_device.h"

namespace ms {
namespace {

using tensor::Arena;
using tensor::DType;
using tensor::Tensor;

struct Tensors {
  std::vector<nn::SpanTensors> spans;
  nn::LayerScratch scratch;
  nn::ChunkSlot slot;
  nn::HeadScratch head;
  std::vector<nn::RouterBuffers> routers;
  Tensor rotary, tokens, starts, positions;
};

Tensors carve(Arena& arena, const nn::Shape& shape, const nn::ChunkPart& part) {
  Tensors tensors;
  for (nn::SpanSpec& spec : nn::chunk_spans(*shape.model, {1, 1, 1}, 0, part, 0)) {
    const Tensor values = arena.take(DType::f32, 1, spec.numel), grads = arena.take(DType::f32, 1, spec.numel);
    tensors.spans.push_back({std::move(spec), values, grads});
  }
  tensors.scratch = nn::carve_scratch(arena, shape, nn::kinds_of(*shape.model, {&part, 1}));
  tensors.slot = nn::carve_slot(arena, shape, {&part, 1}, tensors.scratch);
  tensors.head = nn::carve_head(arena, shape);
  tensors.rotary = nn::carve_rotary(arena, shape);
  for (std::int64_t i = 0; i < shape.model->layers; ++i) {
    nn::RouterBuffers& buffers = tensors.routers.emplace_back();
    if (shape.model->router_bias && shape.model->has_experts(i))
      buffers.bias = arena.take(DType::f32, 1, shape.model->experts);
  }
  for (Tensor* x : {&tensors.tokens, &tensors.starts, &tensors.positions})
    *x = arena.take(DType::i32, 1, shape.tokens());
  return tensors;
}

}  // namespace

std::vector<float> logits_of(const ckpt::Parameters& from, nn::ModelConfig model, std::span<const std::int32_t> tokens,
                             std::span<const std::int32_t> starts) {
  model.vocab_multiple = 1;  // logits without padding, as the others have them
  MS_ASSERT(static_cast<std::int64_t>(tokens.size()) == model.seq, "{} tokens for {}", tokens.size(), model.seq);
  nn::Shape shape;
  shape.model = &model;
  shape.batch = 1;
  const nn::ChunkPart part = nn::chunk_part(model, {1, 1, 1}, 0, 0, 1);

  tensor::MatmulCache matmuls;
  tensor::CpuPool pool(tensor::CpuPool::size_for(1, 1, 1));
  tensor::CpuDevice device(pool, matmuls);
  Arena measured = Arena::measuring();
  carve(measured, shape, part);
  const auto memory = device.allocate(static_cast<std::size_t>(measured.used_bytes()), "a forward pass");
  Arena arena(*memory);
  Tensors tensors = carve(arena, shape, part);
  for (const nn::SpanTensors& span : tensors.spans) {
    for (const nn::ParamSpec& param : span.spec.params) {
      const std::vector<float> values = from.read_f32(param.shard.name);
      MS_ASSERT(static_cast<std::int64_t>(values.size()) == param.numel(), "{} has another shape", param.shard.name);
      std::memcpy(span.values.as<float>() + param.offset, values.data(), values.size() * sizeof(float));
    }
  }
  for (std::size_t i = 0; i < tensors.routers.size(); ++i) {
    const Tensor& bias = tensors.routers[i].bias;
    if (!bias) continue;
    const std::vector<float> values = from.read_f32(nn::router_bias_name(static_cast<std::int64_t>(i)));
    std::memcpy(bias.data, values.data(), values.size() * sizeof(float));
  }
  std::memcpy(tensors.tokens.data, tokens.data(), tokens.size_bytes());
  nn::Microbatch input{tensors.tokens, {}};
  for (std::size_t i = 0; i < starts.size(); ++i) {
    tensors.starts.as<std::int32_t>()[i] = starts[i];
    tensors.positions.as<std::int32_t>()[i] = static_cast<std::int32_t>(i) - starts[i];
  }
  if (!starts.empty()) input.starts = tensors.starts, input.positions = tensors.positions;

  comm::ThreadHub hub(1, std::chrono::seconds(60));
  const auto world = hub.world(0);
  const auto compute = device.make_stream("compute", tensor::StreamKind::compute);
  const auto tp_stream = device.make_stream("tp", tensor::StreamKind::comm);
  const auto tp = world->open({"tp", 1, {0}}, *tp_stream);
  const nn::TensorParallel on{*compute, *tp, shape};
  for (const tensor::RotaryTable& table : nn::rotary_tables(tensors.rotary, shape)) compute->submit(table);
  const nn::Chunk chunk(shape, part, tensors.spans, tensors.rotary, {}, {}, tensors.routers);
  chunk.forward(on, tensors.slot, input, tensors.scratch);
  chunk.head_logits(on, tensors.slot, tensors.scratch, tensors.head);
  compute->synchronize();
  const float* logits = tensors.head.logits.as<float>();
  std::vector<float> result(logits, logits + tensors.head.logits.numel());
  world->close();
  return result;
}

}  // namespace ms
