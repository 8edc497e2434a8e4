#include "train/plan.h"

#include "base/file.h"
#include "sched/checker.h"
#include "sched/csv.h"
#include "sched/generate.h"

namespace ms::train {
namespace {

sched::Schedule training_schedule(const mesh::MeshConfig& mesh, int microbatches) {
  const int pp = static_cast<int>(mesh.pp), chunks = static_cast<int>(mesh.chunks);
  if (!mesh.schedule.ends_with(".csv")) return sched::make_schedule(mesh.schedule, pp, chunks, microbatches);
  sched::Schedule schedule =
      sched::parse_csv(read_file(mesh.schedule, Blame::user), mesh.schedule, {pp, chunks, microbatches, true});
  sched::require_sound(schedule, mesh.schedule);
  return schedule;
}

}  // namespace

nn::Shape Plan::shape(int tp_rank) const {
  return {.model = &settings.model,
          .batch = settings.train.microbatch,
          .tp = mesh.tp,
          .tp_rank = tp_rank,
          .sequence_parallel = settings.mesh.sequence_parallel,
          .dtype = dtype,
          .recompute = nn::recompute_from(settings.train.recompute)};
}

nn::ChunkPart Plan::part(int pp_rank, int chunk) const {
  return nn::chunk_part(settings.model, mesh, pp_rank, chunk, chunks);
}

std::vector<nn::SpanSpec> Plan::spans(int pp_rank, int tp_rank, int chunk) const {
  return nn::chunk_spans(settings.model, mesh, tp_rank, part(pp_rank, chunk), chunk);
}

cost::ModelShape Plan::model_shape() const {
  const nn::ModelConfig& model = settings.model;
  return {.layers = model.layers,
          .hidden = model.hidden,
          .heads = model.heads,
          .kv_heads = model.kv(),
          .head_dim = model.head_dim(),
          .ffn = model.ffn(),
          .vocab = model.vocab,
          .seq = model.seq,
          .window = 0,
          .gated_mlp = model.gated(),
          .tied = model.tied_embeddings,
          .biases = model.is_gpt(),
          .learned_positions = model.is_gpt()};
}

Plan make_plan(const Settings& settings, int world) {
  Plan plan;
  plan.settings = settings;
  plan.mesh = mesh::make_mesh(settings.mesh.dp, settings.mesh.pp, settings.mesh.tp, world);
  plan.chunks = static_cast<int>(settings.mesh.chunks);
  plan.microbatches = static_cast<int>(settings.train.global_batch / (settings.mesh.dp * settings.train.microbatch));
  plan.dtype = settings.train.dtype == "bf16" ? tensor::DType::bf16 : tensor::DType::f32;
  plan.training = training_schedule(settings.mesh, plan.microbatches);
  plan.evaluation = sched::forward_only(plan.mesh.pp, plan.chunks, plan.microbatches);
  plan.single = sched::forward_only(plan.mesh.pp, plan.chunks, 1);
  return plan;
}

}  // namespace ms::train
