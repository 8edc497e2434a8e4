// The plan: everything that follows from the settings before anything runs. Pure; `ms-train plan` prints it and the
// engine obeys it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cost/flops.h"
#include "data/batch.h"
#include "mesh/mesh.h"
#include "nn/chunk.h"
#include "optim/sharded.h"
#include "sched/schedule.h"
#include "train/config.h"

namespace ms::train {

struct Plan {
  Settings settings;
  mesh::Mesh mesh;
  int chunks = 1;
  data::BatchShape batch{};
  int microbatches = 1;  // of a step, on every rank, after the ramp-up
  tensor::DType dtype = tensor::DType::f32;
  sched::Schedule training, evaluation, single;  // single: one microbatch forward, to generate text
  std::map<int, sched::Schedule> ramp;           // of the ramp-up's steps, by microbatches
  std::optional<sched::Schedule> replay;         // one microbatch forward and backward; absent: guard.replay_every is 0
  std::vector<int> gradient_buffers;             // [pp rank], of each chunk: what the training schedules need
  bool inference = false;                        // forward only: no gradients, no optimizer; `training` is not used
  bool caches = false;                           // keeps keys and values: only Engine::next_token() computes anything

  // Points into this plan: it must stay where it is.
  nn::Shape shape(int tp_rank, int dp_rank = 0) const;
  nn::ChunkPart part(int pp_rank, int chunk) const;
  std::vector<nn::SpanSpec> spans(int pp_rank, int tp_rank, int chunk, int dp_rank = 0) const;
  bool holds_head(int pp_rank) const { return pp_rank == mesh.pp - 1; }
  // Ranks of mesh.cp need positions to embed tokens, and where documents begin, of whole sequences.
  bool takes_positions() const { return settings.data.reset_attention || mesh.cp > 1; }
  // Whether the ranks of a stage take tokens: the first embeds them, the last has their targets, and all mask
  // attention by where documents begin.
  bool needs_tokens(int pp_rank) const { return pp_rank == 0 || holds_head(pp_rank) || settings.data.reset_attention; }
  // Whether the ranks of a stage take patches of images, with the tokens that they embed.
  bool takes_patches(int pp_rank) const { return pp_rank == 0 && settings.model.patch_size > 0 && !caches; }
  std::int64_t tokens_per_step() const { return settings.train.global_batch * settings.model.seq; }
  std::int64_t tokens_of(std::int64_t step) const { return batch.batch(step) * settings.model.seq; }
  const sched::Schedule& schedule_of(std::int64_t step) const;
  // Whether the first backward that adds to gradients may set them instead (nn::TensorParallel::sets_gradients). Under
  // zero 2 and 3 all of them do, unless chunks (zero 2) or the halves of a backward leave each other's gradients in a
  // buffer.
  bool sets_gradients() const;
  cost::ModelShape model_shape() const;
};

// `world`: how many ranks there are; throws Error("mesh.size") when the mesh has another size. The settings come
// from load().
Plan make_plan(const Settings& settings, int world);
// The plan of a command that evaluates a model, or that only `generates` with it.
Plan make_inference_plan(const Settings& settings, int world, bool generates);

}  // namespace ms::train
