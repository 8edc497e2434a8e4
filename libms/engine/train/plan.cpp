#include "train/plan.h"

#include <algorithm>

#include "base/file.h"
#include "optim/shard_group.h"
#include "sched/checker.h"
#include "sched/csv.h"
#include "sched/generate.h"

namespace ms::train {
namespace {

// Where messages do not travel under compute, rows do not stand early for it.
sched::Options options_of(const OverlapConfig& overlap) {
  return {.early_receives = overlap.pp, .spread_parameters = overlap.dp};
}

sched::Schedule training_schedule(const Settings& settings, int microbatches, const sched::Options& options) {
  const mesh::MeshConfig& mesh = settings.mesh;
  const int pp = static_cast<int>(mesh.pp), chunks = static_cast<int>(mesh.chunks);
  if (!mesh.schedule.ends_with(".csv")) return sched::make_schedule(mesh.schedule, pp, chunks, microbatches, options);
  return sched::parse_csv(read_file(mesh.schedule, Blame::user), mesh.schedule, {pp, chunks, microbatches, true});
}

// Nothing is obeyed that is not proven for the way it will be obeyed.
sched::Report prove(const sched::Schedule& schedule, const Settings& settings) {
  sched::require_sound(schedule, settings.mesh.schedule);
  if (settings.overlap.pp) return sched::check(schedule);
  sched::Report report = sched::check(schedule, {}, sched::Coupling::coupled);
  if (!report.ok) {
    throw user_error(
        "sched.invalid",
        fmt::format(
            "the schedule {} cannot run with overlap.pp = false, with which compute waits for every transfer: {}",
            settings.mesh.schedule, report.problem));
  }
  return report;
}

// Samples of a microbatch, over all parts of a batch.
std::int64_t rows_of(const Settings& settings) { return settings.mesh.dp * settings.train.microbatch; }

bool splits_backward(const sched::Schedule& schedule) {
  const auto splits = [](const std::vector<sched::Row>& rows) {
    return std::any_of(rows.begin(), rows.end(),
                       [](const sched::Row& row) { return row.action == sched::Action::backward_weight; });
  };
  return std::any_of(schedule.rows.begin(), schedule.rows.end(), splits);
}

}  // namespace

nn::Shape Plan::shape(int tp_rank, int dp_rank) const {
  return {.model = &settings.model,
          .batch = settings.train.microbatch,
          .tp = mesh.tp,
          .tp_rank = tp_rank,
          .cp = mesh.cp,
          .cp_rank = dp_rank % mesh.cp,
          .cp_type = cp_type_of(settings),
          .ep = mesh.ep,
          .ep_rank = mesh.ep_rank({.dp = dp_rank, .tp = tp_rank}),
          .folds_tp = mesh.folds_tp,
          .exchanges_slots = exchanges_slots(settings),
          .moe_capacity = settings.train.moe_capacity,
          .sequence_parallel = settings.mesh.sequence_parallel,
          .dtype = dtype,
          .recompute = nn::recompute_from(settings.train.recompute),
          .split_backward = splits_backward(training),
          .fp8 = settings.train.fp8,
          .z_loss = settings.train.z_loss,
          .moe_aux_loss = settings.train.moe_aux_loss,
          .moe_z_loss = settings.train.moe_z_loss,
          .balances_sequences = settings.train.moe_aux_scope == "sequence"};
}

nn::ChunkPart Plan::part(int pp_rank, int chunk) const {
  return nn::chunk_part(settings.model, mesh, pp_rank, chunk, chunks);
}

bool Plan::sets_gradients() const {
  if (settings.optim.zero < 2) return true;
  return !splits_backward(training) && (chunks == 1 || settings.optim.zero == 3);
}

const sched::Schedule& Plan::schedule_of(std::int64_t step) const {
  const std::int64_t rows = rows_of(settings);
  const auto found = ramp.find(static_cast<int>(batch.batch(step) / rows));
  return found == ramp.end() ? training : found->second;
}

std::vector<nn::SpanSpec> Plan::spans(int pp_rank, int tp_rank, int chunk, int dp_rank) const {
  const std::int64_t bytes = tensor::size_of(optim::grads_dtype(settings.optim));  // of a gradient
  const std::int64_t message = std::max<std::int64_t>(settings.overlap.dp_message / bytes, 1);
  return nn::chunk_spans(settings.model, mesh, tp_rank, part(pp_rank, chunk), chunk, message,
                         mesh.ep_rank({.dp = dp_rank, .tp = tp_rank}));
}

cost::ModelShape Plan::model_shape() const {
  const nn::ModelConfig& model = settings.model;
  return {.layers = model.layers,
          .hidden = model.hidden,
          .heads = model.heads,
          .kv_heads = model.kv(),
          .head_dim = model.head_dim(),
          .ffn = model.experts > 0 ? model.expert_ffn() : model.ffn(),
          .vocab = model.vocab,
          .seq = model.seq,
          .experts = model.experts,
          .experts_per_token = model.experts_per_token,
          .shared_ffn = model.shared_ffn(),
          .shared_gate = model.shared_expert_gate,
          .dense_layers = model.dense_layer_count(),
          .dense_ffn = model.ffn(),
          .window = model.window,
          .parallel_block = model.shares_norm(),
          .gated_mlp = model.gated(),
          .tied = model.tied_embeddings,
          .norm_bias = model.has_layer_norm(),
          .qkv_bias = model.has_qkv_bias(),
          .out_bias = model.has_out_bias(),
          .mlp_bias = model.has_mlp_bias(),
          .qk_norm = model.qk_norm,
          .learned_positions = model.is_gpt(),
          .patch_numbers = model.patch_numbers()};
}

namespace {

// All of a plan but how it trains.
Plan forward_plan(const Settings& settings, int world) {
  Plan plan;
  plan.settings = settings;
  const mesh::MeshConfig& mesh = settings.mesh;
  plan.mesh = mesh::make_mesh(mesh.dp, mesh.pp, mesh.tp, world, mesh.ep, mesh.cp, mesh.expert_tp);
  plan.mesh.ends = {mesh.first_layers, mesh.last_layers};
  plan.mesh.shard_groups = static_cast<int>(optim::shard_groups(settings.optim, settings.mesh));
  plan.chunks = static_cast<int>(settings.mesh.chunks);
  plan.batch = batch_of(settings);
  plan.microbatches = static_cast<int>(settings.train.global_batch / rows_of(settings));
  plan.dtype = settings.train.dtype == "bf16" ? tensor::DType::bf16 : tensor::DType::f32;
  const sched::Options options = options_of(settings.overlap);
  plan.evaluation = sched::forward_only(plan.mesh.pp, plan.chunks, plan.microbatches, options);
  plan.single = sched::forward_only(plan.mesh.pp, plan.chunks, 1, options);
  return plan;
}

}  // namespace

Plan make_plan(const Settings& settings, int world) {
  Plan plan = forward_plan(settings, world);
  plan.gradient_buffers.assign(static_cast<std::size_t>(plan.mesh.pp), 0);
  const sched::Options options = options_of(settings.overlap);
  const auto proven = [&](sched::Schedule schedule) {
    const sched::Report report = prove(schedule, settings);
    for (std::size_t p = 0; p < report.ranks.size(); ++p)
      plan.gradient_buffers[p] = std::max(plan.gradient_buffers[p], report.ranks[p].gradient_buffers);
    return schedule;
  };
  const auto made = [&](int microbatches) { return proven(training_schedule(settings, microbatches, options)); };
  plan.training = made(plan.microbatches);
  for (const data::RampStage& stage : plan.batch.ramp) {
    const int microbatches = static_cast<int>(stage.batch / rows_of(settings));
    plan.ramp.emplace(microbatches, made(microbatches));
  }
  if (settings.guard.replay_every > 0) plan.replay = proven(sched::there_and_back(plan.mesh.pp, plan.chunks, options));
  return plan;
}

Plan make_inference_plan(const Settings& settings, int world, bool generates) {
  Plan plan = forward_plan(settings, world);
  plan.training = plan.evaluation;
  plan.gradient_buffers.assign(static_cast<std::size_t>(plan.mesh.pp), 0);
  plan.inference = true;
  plan.caches = generates && settings.run.device == "cpu";  // on a GPU attention computes whole sequences
  return plan;
}

}  // namespace ms::train
