// All tensors of a rank, carved from one arena: the plan measures with the code that the run allocates with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/plan.h"

namespace ms::train {

struct ChunkTensors {
  std::vector<nn::SpanSpec> specs;
  std::vector<optim::SpanMemory> spans;
  std::vector<nn::RoundedWeights> rounded;  // of its layers
  std::vector<tensor::Tensor> caches;       // nn::Positions::cache of its layers; none unless plan.caches
  std::vector<nn::RouterBuffers> routers;   // of its layers, absent for dense ones; none if the model has no experts
  // [Ts,H]: gradients of activations between stages, received, turned into that of the input, sent. A ring, because the
  // next one arrives while the last one leaves.
  std::vector<tensor::Tensor> gradients;
};

struct RankTensors {
  std::vector<ChunkTensors> chunks;
  // Shared by the chunks. Each has as many layers as the largest of those that schedules put there: a smaller one
  // leaves the last unused.
  std::vector<nn::ChunkSlot> slots;
  // The memory of carve_window(). Absent unless plan.caches; slots, scratch and head are absent then.
  std::optional<tensor::Arena> window;
  nn::LayerScratch scratch;
  tensor::Tensor ring_received;       // [Ts,H] of the tp ring, where there is one
  nn::HeadScratch head;               // on the last stage
  tensor::Tensor rotary;              // of llama models
  std::vector<nn::Microbatch> input;  // [microbatches]
  optim::StepScalars scalars;
  optim::MatrixMemory matrices;
  tensor::Tensor ignored_loss;    // f64 [1,1]: where tp ranks other than 0 sum the loss
  tensor::Tensor module_squares;  // f64 [1,modules]: of gradients; absent unless metrics want them
  // [layers of the rank with experts, experts]: RouterBuffers of them by row, and f64 sums of `chosen` over dp; absent
  // unless model.router_bias, and where nothing is trained the biases only.
  tensor::Tensor router_biases, router_chosen, router_counts;
  tensor::Tensor expert_loads;                   // f64 [1,layers (experts + 1)], of the world, as LayerWeights::load
  tensor::Tensor token_losses;                   // f32 [1,tokens of all microbatches] on the last stage, for inference
  tensor::Tensor logits_row, logits_all, token;  // to generate: [1,V/tp], [tp,V/tp] on the last stage; i32 [1,1]
};

struct MemoryRow {
  std::string what;
  std::int64_t bytes;
};

// `memory`, where given, receives what was taken for what, in order.
RankTensors carve_rank(tensor::Arena& arena, const Plan& plan, const mesh::Coord& at, std::vector<MemoryRow>* memory);

// Returns the shape of the tokens at [first, first + rows) of one sequence. plan.caches.
nn::Shape window_shape(const Plan& plan, const mesh::Coord& at, std::int64_t first, std::int64_t rows);
// Returns the rank's tensors with slots, scratch, head and input of that shape, in the memory of the last such tensors.
RankTensors carve_window(const Plan& plan, const mesh::Coord& at, const RankTensors& rank, const nn::Shape& shape);

// Bytes of a rank by purpose, and their sum.
struct RankMemory {
  std::vector<MemoryRow> rows;
  std::int64_t total_bytes = 0;
};
RankMemory rank_memory(const Plan& plan, const mesh::Coord& at);

optim::SpanLayout layout_of(const nn::SpanSpec& spec, const Plan& plan);

}  // namespace ms::train
