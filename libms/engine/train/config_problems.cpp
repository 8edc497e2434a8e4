// Settings of several sections that are impossible together.
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "ckpt/directory.h"
#include "nn/params.h"
#include "optim/groups.h"
#include "optim/optimizer.h"
#include "optim/shard_group.h"
#include "sched/registry.h"
#include "train/config.h"

namespace ms::train {

namespace {

// Schedules and groups are tables in memory: these keep them within seconds and gigabytes.
constexpr std::int64_t kMaxRanks = 1 << 20;
constexpr std::int64_t kMaxMicrobatches = 1 << 16;

// Returns a path without ".", ".." and a slash at its end, by its text alone.
std::filesystem::path plain_path(const std::string& text) {
  return (std::filesystem::path(text) / "").lexically_normal().parent_path();
}

// Whether a path is a directory of checkpoints or one of those in it, by their names.
bool is_or_lies_in(const std::string& path, const std::string& directory) {
  const std::filesystem::path a = plain_path(path), b = plain_path(directory);
  return a == b || (a.parent_path() == b && ckpt::step_from(a.filename().string()));
}

// Returns what is wrong with the ramp-up of the batch; `unit`: what a batch is a multiple of.
std::string ramp_problem(const Settings& settings, std::int64_t unit) {
  constexpr std::int64_t kMaxStages = 1024;  // each has a schedule
  const TrainConfig& train = settings.train;
  const std::int64_t start = train.rampup_start, increment = train.rampup_increment;
  if (start == 0) {
    return increment > 0 || train.rampup_samples > 0 ? "without it rampup_increment and rampup_samples mean nothing"
                                                     : "";
  }
  if (settings.mesh.schedule.ends_with(".csv")) return "a schedule from a file has one number of microbatches";
  if (increment == 0 || train.rampup_samples == 0) return "it needs rampup_increment and rampup_samples";
  if (start >= train.global_batch) return fmt::format("{} is not below global_batch = {}", start, train.global_batch);
  if (start % unit != 0 || increment % unit != 0) {
    return fmt::format("{} and rampup_increment = {} must be multiples of {}, as global_batch is", start, increment,
                       unit);
  }
  if ((train.global_batch - start) % increment != 0) {
    return fmt::format("from {} to global_batch = {} is not a multiple of rampup_increment = {}", start,
                       train.global_batch, increment);
  }
  if ((train.global_batch - start) / increment > kMaxStages) return fmt::format("more than {} increments", kMaxStages);
  return "";
}

// Returns what is wrong with the groups of parameters of a model that is sound itself.
std::vector<std::string> group_problems(const Settings& settings) {
  std::vector<std::string> problems;
  const std::vector<std::string> names = nn::parameter_names(settings.model);
  for (const std::string& entry : settings.optim.groups) {
    try {
      const std::string pattern = optim::parse_group(entry).pattern;
      const auto fits = [&](const std::string& name) { return optim::matches(pattern, name); };
      if (std::ranges::none_of(names, fits))
        problems.push_back(fmt::format("no parameter is called '{}': names are as '{}'", pattern, names.back()));
    } catch (const Error& error) {  // of one entry, reported among all problems of the configuration
      problems.push_back(fmt::format("{}; {}", error.message(), error.hint()));
    }
  }
  return problems;
}

}  // namespace

std::vector<nn::ModelProblem> problems_between(const Settings& settings) {
  std::vector<nn::ModelProblem> problems;
  const TrainConfig& train = settings.train;
  const mesh::MeshConfig& mesh = settings.mesh;
  const auto add = [&](std::string_view key, std::string message) {
    problems.push_back({std::string(key), std::move(message)});
  };
  for (const nn::ModelProblem& problem : nn::check_model(settings.model, mesh, train.microbatch)) {
    add(problem.key, problem.message);
  }
  const std::int64_t unit = mesh.dp * train.microbatch;
  const sched::ScheduleKind* const kind = sched::find_kind(mesh.schedule, static_cast<int>(mesh.chunks));
  const bool whole_groups = kind != nullptr ? kind->whole_groups : mesh.chunks > 1;
  if (train.global_batch % unit != 0) {
    add("train.global_batch", fmt::format("train.global_batch = {} is not divisible by mesh.dp x train.microbatch = {}",
                                          train.global_batch, unit));
  } else if (whole_groups && mesh.pp > 1 && (train.global_batch / unit) % mesh.pp != 0) {
    add("train.global_batch",
        fmt::format("{} microbatches per step; the interleaved schedule needs a multiple of mesh.pp = {}",
                    train.global_batch / unit, mesh.pp));
  }
  const std::int64_t ramp_unit = unit * (whole_groups ? mesh.pp : 1);
  if (const std::string problem = ramp_problem(settings, ramp_unit); !problem.empty())
    add("train.rampup_start", fmt::format("train.rampup_start: {}", problem));
  if (mesh.dp_max > 0 && mesh.dp_max < mesh.dp_min)
    add("mesh.dp_max", fmt::format("mesh.dp_max = {} is below mesh.dp_min = {}", mesh.dp_max, mesh.dp_min));
  if (mesh.chunks > 1 && mesh.pp == 1)
    add("mesh.chunks", "mesh.chunks > 1 needs mesh.pp > 1: chunks interleave pipeline stages");
  if (settings.optim.decay_steps > train.steps)
    add("optim.decay_steps",
        fmt::format("{} steps of decay in a run of {} steps", settings.optim.decay_steps, train.steps));
  if (problems.empty()) {
    for (std::string& problem : group_problems(settings)) add("optim.groups", std::move(problem));
  }
  std::int64_t ranks = mesh.dp * mesh.pp * mesh.tp;  // each below 2^25
  if (ranks <= kMaxRanks) ranks *= mesh.cp;
  if (ranks > kMaxRanks) add("mesh.dp", fmt::format("{} ranks, at most {} are possible", ranks, kMaxRanks));
  if (train.global_batch / unit > kMaxMicrobatches) {
    add("train.global_batch",
        fmt::format("{} microbatches in a step, at most {} are possible", train.global_batch / unit, kMaxMicrobatches));
  }
  if (const bool known = sched::is_schedule(mesh.schedule); !known && !mesh.schedule.ends_with(".csv")) {
    add("mesh.schedule",
        fmt::format("no schedule is called '{}': {}, or a file ending in .csv", mesh.schedule, sched::schedule_keys()));
  } else if (known && kind == nullptr) {
    add("mesh.schedule", mesh.chunks > 1
                             ? fmt::format("{} has no interleaved form: mesh.chunks must be 1", mesh.schedule)
                             : fmt::format("{} is interleaved: mesh.chunks must be above 1", mesh.schedule));
  }
  if (std::string problem = optim::shard_group_problem(settings.optim, mesh); !problem.empty())
    add("optim.shard_group", std::move(problem));
  if (settings.optim.main_grads_dtype == "bf16" && train.dtype != "bf16")
    add("optim.main_grads_dtype", "bf16 gradients belong to bf16 parameters: set train.dtype = \"bf16\"");
  if (settings.optim.moments_dtype == "bf16" && !optim::optimizer_kind(settings.optim.name).takes_bf16)
    add("optim.moments_dtype", fmt::format("{} keeps its state in fp32", settings.optim.name));
  if (train.moe_capacity > 0 && train.moe_capacity < 1)
    add("train.moe_capacity", "below an even share tokens are always dropped: set 1 or more, or 0 for no limit");
  if (mesh.ep > 1 && train.moe_capacity > 0 && !exchanges_slots(settings))
    add("train.moe_capacity", "a capacity needs train.moe_dispatch = \"all_to_all\"");
  if (mesh.ep > 1 || mesh.folds_tp()) {
    const std::string key = mesh.ep > 1 ? "mesh.ep" : "mesh.expert_tp";
    if (settings.optim.name == "lamb") add("optim.name", "lamb does not sum over the experts of " + key);
    if (settings.guard.replay_every > 0) add("guard.replay_every", "ranks of " + key + " do not compute the same");
    if (!settings.checkpoint.memory_dir.empty()) add("checkpoint.memory_dir", "copies in memory do not know " + key);
  }
  if (mesh.cp > 1) {
    if (mesh.ep > 1) add("mesh.ep", "ranks of mesh.ep have whole sequences: set mesh.cp = 1 or mesh.ep = 1");
    if (settings.model.experts > 0 && train.moe_aux_loss > 0)
      add("train.moe_aux_loss", "it balances experts over whole sequences: set it to 0, and model.router_bias = true");
    if (settings.guard.replay_every > 0) add("guard.replay_every", "ranks of mesh.cp do not compute the same");
    if (settings.run.sample_tokens > 0)
      add("run.sample_tokens", "ranks of mesh.cp do not generate: set it to 0, and use ms-train generate");
    if (settings.run.device == "cuda" && cp_type_of(settings) != nn::CpType::all_to_all)
      add("mesh.cp_type",
          "a GPU attends to whole sequences: set mesh.cp_type = \"all-to-all\", with a mesh.cp that divides "
          "model.kv_heads / mesh.tp");
  }
  // NCCL's documentation limits the calls in a group: a send and a receive for each expert over ep, and over tp for
  // each pair of a member and an expert that it holds.
  constexpr std::int64_t kNcclCalls = 2048;
  const std::int64_t exchanges = settings.model.experts * std::max(mesh.ep, mesh.expert_shards()) / mesh.ep;
  if (settings.run.device == "cuda" && exchanges_slots(settings) && 2 * exchanges > kNcclCalls)
    add("model.experts",
        "an exchange over NCCL takes at most 1024 experts, and mesh.tp / mesh.ep times fewer if that is above 1: set "
        "train.moe_dispatch = \"all_gather\"");
  if (settings.run.device == "cuda" && settings.optim.name == "muon" && settings.optim.zero > 0 &&
      2 * optim::most_replicas(settings.optim, mesh) > kNcclCalls)
    add("optim.name", "muon takes at most 1024 replicas of a matrix, the limit of an all-to-all over NCCL: " +
                          std::string(mesh.folds_tp() ? "raise mesh.ep" : "set optim.shard_group to 1024 or fewer"));
  if (train.fp8 && settings.model.experts > 0) add("train.fp8", "GEMMs of experts (model.experts) do not take FP8");
  if (train.fp8 && settings.optim.zero == 3)
    add("train.fp8", "weights that are rounded to FP8 stay on every rank: set optim.zero = 2");
  if (settings.guard.replay_every > 0 && settings.optim.zero == 3)
    add("guard.replay_every", "with optim.zero = 3 no rank has all gradients of a microbatch: set optim.zero = 2");
  if (train.fp8 && train.dtype != "bf16") add("train.fp8", "FP8 GEMMs take bf16 tensors: set train.dtype = \"bf16\"");
  if (settings.run.device == "cuda") {
    if (train.dtype != "bf16") add("run.device", "attention on a GPU is in bf16: train.dtype = \"bf16\"");
    constexpr std::int64_t kHeadPiece = 8;
    if (const std::int64_t head_dim = settings.model.head_dim(); head_dim % kHeadPiece != 0)
      add("run.device", fmt::format("heads of {}: attention on a GPU takes multiples of {}", head_dim, kHeadPiece));
    constexpr std::int64_t kWidest = 32768;  // kernels/norm_rows.h
    if (settings.model.hidden > kWidest)
      add("run.device",
          fmt::format("model.hidden = {}: norms on a GPU have {} columns at most", settings.model.hidden, kWidest));
  }
  if (settings.run.dir.empty()) add("run.dir", "the run needs a directory");
  const CheckpointConfig& checkpoint = settings.checkpoint;
  if (!checkpoint.dir.empty() && plain_path(checkpoint.dir) == plain_path(settings.run.dir)) {
    add("checkpoint.dir",
        fmt::format("checkpoint.dir = '{}' is run.dir, too: each is locked by whoever writes into it", checkpoint.dir));
  }
  if (settings.guard.rolls_back() && checkpoint.dir.empty()) {
    add(settings.guard.spike == "rollback" ? "guard.spike" : "guard.nonfinite",
        "a rollback needs checkpoints to go back to: set checkpoint.dir");
  }
  if (settings.guard.replay_every > 0 && settings.mesh.dp == 1)
    add("guard.replay_every", "there is no other dp rank to compare with: mesh.dp is 1");
  if (checkpoint.weights_only && checkpoint.load.empty())
    add("checkpoint.weights_only", "checkpoint.weights_only is about checkpoint.load, which is empty");
  if (!checkpoint.load.empty() && !checkpoint.dir.empty() && is_or_lies_in(checkpoint.load, checkpoint.dir)) {
    add("checkpoint.load", fmt::format("checkpoint.load = '{}', but a run resumes from checkpoint.dir = '{}' by "
                                       "itself: leave checkpoint.load empty, or set another checkpoint.dir",
                                       checkpoint.load, checkpoint.dir));
  }
  return problems;
}

}  // namespace ms::train
