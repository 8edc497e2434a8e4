#include "train/commands/show_plan.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "cost/zero.h"
#include "sched/checker.h"
#include "sched/csv.h"
#include "sched/registry.h"
#include "tensor/cpu_isa.h"
#include "train/engine/state.h"
#include "train/simulate/step_operations.h"

namespace ms::train {
namespace {

// Returns the layers of the chunks of one pipeline rank, as text.
std::string layers_text(const Plan& plan, int pp_rank) {
  std::string text;
  for (int c = 0; c < plan.chunks; ++c) {
    const nn::ChunkPart part = plan.part(pp_rank, c);
    text += fmt::format("{}{}{}-{}{}", c == 0 ? "" : ", ", part.first ? "embedding, " : "", part.layer_begin,
                        part.layer_end - 1, part.last ? ", head" : "");
  }
  return text;
}

// The first rank of a stage stands for it: the ranks of a stage differ in the vocabulary's padding at most.
RankMemory stage_memory(const Plan& plan, int pp_rank) { return rank_memory(plan, {.dp = 0, .pp = pp_rank, .tp = 0}); }

StepWork stage_work(const Plan& plan, int pp_rank) {
  return work_of_step(plan, plan.mesh.rank({.dp = 0, .pp = pp_rank, .tp = 0}));
}

// The least time of a step, and what it is of the peak. No message and no launch is counted.
struct Bound {
  std::vector<StepWork> stages;
  double step_s = 0;
  cost::FlopsPerToken mfu{};
};
Bound bound_of(const Plan& plan, const cost::Ceilings& device, double bubble) {
  Bound bound;
  for (int p = 0; p < plan.mesh.pp; ++p) {
    bound.stages.push_back(work_of_step(plan, plan.mesh.rank({.dp = 0, .pp = p, .tp = 0}), device));
    double sum_s = 0;
    for (const Work& of_class : bound.stages.back()) sum_s += of_class.least_s;
    bound.step_s = std::max(bound.step_s, sum_s * (1 + bubble));
  }
  const cost::FlopsPerToken flops = cost::flops_per_token(plan.model_shape());
  const auto share = [&](double of_token) {
    return cost::mfu(of_token, static_cast<double>(plan.tokens_per_step()) / bound.step_s, device.bf16_flops,
                     plan.mesh.size());
  };
  bound.mfu = {.gemm = share(flops.gemm),
               .causal = share(flops.causal),
               .full = share(flops.full),
               .reported = share(flops.reported)};
  return bound;
}

std::string bound_text(const Plan& plan, const PlanDevice& device, double bubble) {
  const Bound bound = bound_of(plan, device.ceilings, bubble);
  TextTable table(
      {{fmt::format("at most, on {}", device.name)}, {"least time", Align::right}, {"of the step", Align::right}});
  const StepWork& first = bound.stages.front();
  for (std::size_t c = 0; c < first.size(); ++c) {
    if (first[c].bytes == 0) continue;
    table.row({std::string(cost::kOpClassNames[c]), fmt::format("{:.4g} ms", 1e3 * first[c].least_s),
               fmt::format("{:.1f} %", 100 * first[c].least_s / bound.step_s)});
  }
  table.row({"step", fmt::format("{:.4g} ms", 1e3 * bound.step_s), ""});
  return fmt::format(
      "\n{}MFU at most: gemm {:.1f} %, causal {:.1f} %, full {:.1f} %, reported {:.1f} % of {:.4g} TFLOP/s in bf16{}; "
      "without communication and launches; 'full' includes masked attention\n",
      table.str(), 100 * bound.mfu.gemm, 100 * bound.mfu.causal, 100 * bound.mfu.full, 100 * bound.mfu.reported,
      device.ceilings.bf16_flops * 1e-12, plan.settings.train.fp8 ? "; FP8 GEMMs can exceed 100 %" : "");
}

cost::StateBytes state_of(const Plan& plan) {
  const optim::OptimizerKind& kind = optim::optimizer_kind(plan.settings.optim.name);
  const auto states = static_cast<double>(kind.states.size()),
             of_matrices = static_cast<double>(kind.matrix_states.size());
  const double matrices = kind.matrix_states.empty()
                              ? 0
                              : static_cast<double>(nn::matrix_parameter_count(plan.settings.model)) /
                                    static_cast<double>(nn::parameter_count(plan.settings.model));
  const optim::OptimConfig& config = plan.settings.optim;
  const double in_f32 = optim::moments_dtype(config) == tensor::DType::bf16 ? 0.5 : 1;
  return cost::state_bytes(plan.dtype == tensor::DType::bf16, optim::grads_dtype(config) == tensor::DType::bf16,
                           in_f32 * ((1 - matrices) * states + matrices * of_matrices));
}

// A checkpoint has the parameters, their master copies and the optimizer's state.
std::int64_t checkpoint_bytes(const Plan& plan) {
  const cost::StateBytes state = state_of(plan);
  return std::llround((state.parameter + state.optimizer) *
                      static_cast<double>(nn::parameter_count(plan.settings.model)));
}

// Only what a class does much of is a number to think about.
std::string work_text(const Work& work) {
  if (work.bytes == 0) return "-";
  const std::string bytes = format_size(work.bytes);
  return work.flops == 0 ? bytes : fmt::format("{:.4g} TFLOP, {}", work.flops * 1e-12, bytes);
}

// In the way it is executed.
sched::Report report_of(const Plan& plan) {
  return sched::check(plan.training, {.forward = 1.0, .backward = 2.0},
                      plan.settings.overlap.pp ? sched::Coupling::decoupled : sched::Coupling::coupled);
}

std::string schedule_text(const Plan& plan, const sched::Report& report) {
  const sched::ScheduleKind* kind = sched::find_kind(plan.settings.mesh.schedule, plan.chunks);
  return fmt::format(
      "{}, bubble {:.1f} % at backward = 2 x forward{}", kind != nullptr ? kind->title() : plan.settings.mesh.schedule,
      100 * report.bubble / (1 + report.bubble), plan.shape(0).split_backward ? ", split in halves" : "");
}

// Names the axes whose communication overlaps compute, and those that compute waits for. Axes of size 1 have none.
std::string overlap_text(const Plan& plan) {
  const OverlapConfig& overlap = plan.settings.overlap;
  struct Axis {
    std::string_view name;
    int size;
    bool on;
  };
  std::string under, waited;
  for (const Axis& axis : {Axis{"tp", plan.mesh.tp, overlap.tp},
                           {"pp", plan.mesh.pp, overlap.pp},
                           {"dp", plan.mesh.dp, overlap.dp},
                           {"cp", plan.mesh.cp, plan.shape(0).passes_keys()},
                           {"ep", plan.shape(0).exchanges_slots ? plan.mesh.ep : 1, overlap.ep}}) {
    if (axis.size == 1) continue;
    std::string& names = axis.on ? under : waited;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", axis.name);
  }
  if (under.empty() && waited.empty()) return "one rank has no communication";
  return fmt::format("{}{}{}", under.empty() ? "" : fmt::format("overlapped: {}", under),
                     under.empty() || waited.empty() ? "" : "; ",
                     waited.empty() ? "" : fmt::format("not overlapped: {}", waited));
}

std::string_view cp_type(const Plan& plan) { return to_string(plan.shape(0).cp_type); }

// Returns how experts are shared, if they are not by tp alone.
std::string experts_text(const Plan& plan) {
  if (!plan.mesh.has_expert_groups()) return "";
  return fmt::format(", ep {} of {}{}", plan.mesh.ep, plan.mesh.folds_tp ? "dp x tp" : "dp",
                     plan.mesh.ep == 1               ? ""
                     : plan.shape(0).exchanges_slots ? " by all_to_all"
                                                     : " by all_gather");
}

std::string mlp_text(const nn::ModelConfig& model) {
  if (model.experts == 0) return fmt::format("ffn {}", model.ffn());
  return fmt::format(
      "{} experts of {}, {} a token{}", model.experts, model.expert_ffn(), model.experts_per_token,
      model.dense_layers.empty() ? "" : fmt::format(", ffn {} in layers {}", model.ffn(), model.dense_layers));
}

}  // namespace

std::string cp_text(const Plan& plan) { return plan.mesh.cp == 1 ? "" : fmt::format(" cp {} x", plan.mesh.cp); }

std::string plan_text(const Plan& plan, const std::optional<PlanDevice>& device) {
  const Settings& s = plan.settings;
  const cost::Parameters parameters = cost::count_parameters(plan.model_shape());
  const cost::FlopsPerToken flops = cost::flops_per_token(plan.model_shape());
  const sched::Report report = report_of(plan);
  const int shards = plan.mesh.shard_place(false, {}).shards;
  std::string out;
  auto line = [&](std::string_view name, const std::string& value) { out += fmt::format("{:<18}{}\n", name, value); };
  line("model",
       fmt::format("{}, {} layers, hidden {}, heads {}, kv heads {}, {}, vocabulary {}, sequence {}{}{}",
                   s.model.family, s.model.layers, s.model.hidden, s.model.heads, s.model.kv(), mlp_text(s.model),
                   s.model.vocab, s.model.seq, s.model.parallel_block ? ", parallel block" : "",
                   s.model.window > 0 ? fmt::format(", window {}", s.model.window) : ""));
  const auto count = [](std::int64_t n) { return format_count(static_cast<double>(n)); };
  line("parameters",
       fmt::format("{} ({}){}", parameters.total, count(parameters.total),
                   s.model.experts > 0 ? fmt::format(", of which a token passes {}", count(parameters.active)) : ""));
  line("mesh", fmt::format("{}: tp {} (fastest) x{} dp {} x pp {}, {} chunk{} a rank{}{}{}",
                           plural(plan.mesh.size(), "rank"), plan.mesh.tp, cp_text(plan), plan.mesh.batch_parts(),
                           plan.mesh.pp, plan.chunks, plan.chunks == 1 ? "" : "s",
                           s.mesh.sequence_parallel && plan.mesh.tp > 1 ? ", sequence parallel" : "",
                           plan.mesh.cp > 1 ? fmt::format(", cp by {}", cp_type(plan)) : "", experts_text(plan)));
  line("batch", fmt::format("{} sequences = {} microbatches of {} on each of {} dp ranks, {} tokens a step{}",
                            s.train.global_batch, plan.microbatches, s.train.microbatch, plan.mesh.batch_parts(),
                            plan.tokens_per_step(),
                            plan.batch.ramp.empty() ? ""
                                                    : fmt::format(", after {} steps that begin with {} sequences",
                                                                  plan.batch.ramp_steps(), s.train.rampup_start)));
  line("schedule", schedule_text(plan, report));
  line("overlap", overlap_text(plan));
  line("state",
       fmt::format("{}, zero {}{}: {:.2f} bytes a parameter", s.train.dtype, s.optim.zero,
                   shards < plan.mesh.dp && s.optim.zero > 0 ? fmt::format(" in shard groups of {}", shards) : "",
                   cost::zero_bytes_per_parameter(state_of(plan), static_cast<int>(s.optim.zero), shards)));
  if (s.run.device == "cpu") line("device", fmt::format("cpu, {} on this machine", to_string(tensor::cpu_isa())));
  line("FLOPs a token", fmt::format("gemm {:.4e}, causal {:.4e}, full {:.4e}, reported {:.4e}", flops.gemm,
                                    flops.causal, flops.full, flops.reported));
  out += '\n';
  TextTable stages(columns("stage>|layers|warm-up>|live chunks>|memory a rank>"));
  for (int p = 0; p < plan.mesh.pp; ++p) {
    const sched::RankReport& rank = report.ranks[static_cast<std::size_t>(p)];
    stages.row({std::to_string(p), layers_text(plan, p), std::to_string(rank.warm_up), std::to_string(rank.peak_chunks),
                format_size(static_cast<double>(stage_memory(plan, p).total_bytes))});
  }
  out += stages.str() + "\n";
  std::vector<Column> columns{{"memory of a rank"}};
  std::vector<RankMemory> memory;
  std::vector<StepWork> work;
  const int shown = std::min(plan.mesh.pp, 2);  // the first and the last stage differ most
  for (int i = 0; i < shown; ++i) {
    const int p = i == 0 ? 0 : plan.mesh.pp - 1;
    columns.push_back({fmt::format("stage {}", p), Align::right});
    memory.push_back(stage_memory(plan, p));
    work.push_back(stage_work(plan, p));
  }
  TextTable table(columns);
  for (const MemoryRow& row : memory.back().rows) {
    std::vector<std::string> cells{row.what};
    for (const RankMemory& rank : memory) {
      const auto it =
          std::find_if(rank.rows.begin(), rank.rows.end(), [&](const MemoryRow& r) { return r.what == row.what; });
      cells.push_back(it == rank.rows.end() ? "-" : format_size(static_cast<double>(it->bytes)));
    }
    table.row(cells);
  }
  out += table.str() + "\n";
  columns.front() = {"work of a rank's step"};
  TextTable works(columns);
  for (std::size_t c = 0; c < cost::kOpClasses; ++c) {
    std::vector<std::string> cells{std::string(cost::kOpClassNames[c])};
    for (const StepWork& rank : work) cells.push_back(work_text(rank[c]));
    if (std::any_of(work.begin(), work.end(), [&](const StepWork& rank) { return rank[c].bytes > 0; }))
      works.row(cells);
  }
  std::vector<std::string> operations{"operations"};
  for (const StepWork& rank : work) {
    std::int64_t all = 0;
    for (const Work& of_class : rank) all += of_class.operations;
    operations.push_back(std::to_string(all));
  }
  works.row(operations);
  out += works.str();
  if (device) out += bound_text(plan, *device, report.bubble);
  if (!plan.settings.checkpoint.dir.empty()) {
    out += fmt::format("\nsaving takes another {} of host memory per rank, and {} of storage per checkpoint\n",
                       format_size(static_cast<double>(copy_bytes(plan, {}))),
                       format_size(static_cast<double>(checkpoint_bytes(plan))));
    if (!s.checkpoint.memory_dir.empty()) {
      const std::int64_t part = ckpt::MemoryTier::buffer_bytes(saved_pieces(plan, {}));
      out += fmt::format("its copies in memory take another {} per rank, and up to {} per rank in {}\n",
                         format_size(static_cast<double>(part)), format_size(4.0 * static_cast<double>(part)),
                         s.checkpoint.memory_dir);
    }
  }
  return out;
}

std::string plan_json(const Plan& plan, const std::optional<PlanDevice>& device) {
  const Settings& s = plan.settings;
  const cost::Parameters parameters = cost::count_parameters(plan.model_shape());
  const cost::FlopsPerToken flops = cost::flops_per_token(plan.model_shape());
  const sched::Report report = report_of(plan);
  Json json{{"schema", 1},
            {"parameters", parameters.total},
            {"active_parameters", parameters.active},
            {"mesh",
             {{"world", plan.mesh.size()},
              {"dp", plan.mesh.batch_parts()},
              {"pp", plan.mesh.pp},
              {"tp", plan.mesh.tp},
              {"cp", plan.mesh.cp},
              {"cp_type", plan.mesh.cp > 1 ? Json(cp_type(plan)) : Json()},
              {"ep", plan.mesh.ep},
              {"expert_tp", plan.mesh.expert_tp()},
              {"shard_group", plan.mesh.shard_place(false, {}).shards},
              {"chunks", plan.chunks},
              {"sequence_parallel", s.mesh.sequence_parallel}}},
            {"batch",
             {{"global", s.train.global_batch},
              {"microbatch", s.train.microbatch},
              {"microbatches", plan.microbatches},
              {"tokens_per_step", plan.tokens_per_step()},
              {"ramp_steps", plan.batch.ramp_steps()}}},
            {"flops_per_token",
             {{"gemm", flops.gemm}, {"causal", flops.causal}, {"full", flops.full}, {"reported", flops.reported}}},
            {"schedule", {{"name", s.mesh.schedule}, {"bubble", report.bubble}, {"csv", sched::to_csv(plan.training)}}},
            {"overlap", {{"tp", s.overlap.tp}, {"pp", s.overlap.pp}, {"dp", s.overlap.dp}, {"ep", s.overlap.ep}}}};
  Json stages = Json::array();
  for (int p = 0; p < plan.mesh.pp; ++p) {
    Json stage{{"stage", p}, {"chunks", Json::array()}};
    for (int c = 0; c < plan.chunks; ++c) {
      const nn::ChunkPart part = plan.part(p, c);
      stage["chunks"].push_back(
          {{"layers", {part.layer_begin, part.layer_end}}, {"embedding", part.first}, {"head", part.last}});
    }
    const sched::RankReport& rank = report.ranks[static_cast<std::size_t>(p)];
    stage["warm_up"] = rank.warm_up;
    stage["peak_chunks"] = rank.peak_chunks;
    const RankMemory memory = stage_memory(plan, p);
    for (const MemoryRow& row : memory.rows) stage["memory_bytes"][row.what] = row.bytes;
    stage["memory_bytes"]["total"] = memory.total_bytes;
    const StepWork work = stage_work(plan, p);
    for (std::size_t i = 0; i < work.size(); ++i) {
      if (work[i].bytes > 0)
        stage["work_of_step"][std::string(cost::kOpClassNames[i])] = {
            {"operations", work[i].operations}, {"flops", work[i].flops}, {"bytes", work[i].bytes}};
    }
    if (!s.checkpoint.dir.empty()) stage["checkpoint_copy_bytes"] = copy_bytes(plan, {.dp = 0, .pp = p, .tp = 0});
    stages.push_back(std::move(stage));
  }
  if (s.run.device == "cpu") json["instruction_set"] = to_string(tensor::cpu_isa());
  if (!s.checkpoint.dir.empty()) json["checkpoint_bytes"] = checkpoint_bytes(plan);
  json["stages"] = std::move(stages);
  if (device) {
    const Bound bound = bound_of(plan, device->ceilings, report.bubble);
    Json& roofline = json["roofline"] = {{"device", device->name},
                                         {"bf16_flops", device->ceilings.bf16_flops},
                                         {"fp8_flops", device->ceilings.fp8_flops},
                                         {"bytes_per_s", device->ceilings.bytes_per_s},
                                         {"step_s", bound.step_s},
                                         {"mfu",
                                          {{"gemm", bound.mfu.gemm},
                                           {"causal", bound.mfu.causal},
                                           {"full", bound.mfu.full},
                                           {"reported", bound.mfu.reported}}}};
    for (const StepWork& work : bound.stages) {
      Json stage = Json::object();
      for (std::size_t i = 0; i < work.size(); ++i)
        if (work[i].bytes > 0) stage[std::string(cost::kOpClassNames[i])] = work[i].least_s;
      roofline["least_s"].push_back(std::move(stage));
    }
  }
  return json.dump(2) + "\n";
}

}  // namespace ms::train
