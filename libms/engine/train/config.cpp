#include "train/config.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "ckpt/choose.h"
#include "optim/learning_rate.h"
#include "optim/optimizer.h"
#include "sched/registry.h"
#include "train/config_warnings.h"
#include "train/elastic.h"

namespace ms::train {

namespace {

// The table of a section in which one field names a row of a registry: the documentation of the rows is added to that
// of the field.
template <class T>
class RegistryFields {
 public:
  RegistryFields(std::span<const Field<T>> table, std::string_view key, const std::string& docs, Choices choices = {})
      : fields_(table.begin(), table.end()) {
    Field<T>& field = *std::ranges::find(fields_, key, &Field<T>::key);
    doc_ = fmt::format("{} {}.", field.doc, docs);
    field.doc = doc_;
    field.choices = choices;
  }
  std::span<const Field<T>> fields() const { return fields_; }

 private:
  std::vector<Field<T>> fields_;
  std::string doc_;
};

}  // namespace

void bind(ConfigSchema& schema, Settings& settings) {
  const RegistryFields<mesh::MeshConfig> mesh_table(mesh::kMeshFields, "schedule", sched::schedule_docs());
  Choices optimizers, rates;
  for (const optim::OptimizerKind* kind : optim::optimizer_kinds()) optimizers.add(kind->name);
  for (const optim::LearningRateKind& kind : optim::learning_rate_kinds()) rates.add(kind.name);
  const RegistryFields<optim::OptimConfig> named_table(optim::kOptimFields, "name", optim::optimizer_docs(),
                                                       optimizers);
  const RegistryFields<optim::OptimConfig> optim_table(named_table.fields(), "schedule", optim::learning_rate_docs(),
                                                       rates);
  schema.section("model", "The model.", settings.model, nn::kModelFields);
  schema.section("mesh", "The layout of the dp x pp x cp x tp ranks. Adjacent ranks differ in tp.", settings.mesh,
                 mesh_table.fields());
  schema.section("overlap", "Overlap of communication with compute. Only tp changes results.", settings.overlap,
                 kOverlapFields);
  schema.section("train", "The training loop.", settings.train, kTrainFields);
  schema.section("optim", "The optimizer.", settings.optim, optim_table.fields());
  schema.section("guard", "Detection of harmful steps.", settings.guard, kGuardFields);
  schema.section("data", "Training data: token files of 'ms-data encode'.", settings.data, data::kDataFields);
  schema.section("checkpoint", "Saving and loading the state of training.", settings.checkpoint, kCheckpointFields);
  schema.section("trace", "Trace files of the ranks, for ms-tracepp.", settings.trace, trace::kTraceFields);
  schema.section("metrics", "Metrics of every step, written by rank 0. METRICS in ms-train(1) lists them.",
                 settings.metrics, trace::kMetricsFields);
  schema.section("run", "This run.", settings.run, kRunFields);
}

namespace {

// Keys that only some settings give an effect; whoever sets one to something else than its default is warned.
struct Idle {
  std::string_view key;
  bool (*idle)(const Settings&);
  std::string_view because;
};
constexpr Idle kIdle[] = {
    {"train.moe_dispatch", [](const Settings& s) { return s.mesh.ep == 1; }, "mesh.ep is 1"},
    {"mesh.cp_type", [](const Settings& s) { return s.mesh.cp == 1; }, "mesh.cp is 1"},
    {"train.moe_bias_rate", [](const Settings& s) { return !s.model.router_bias; }, "model.router_bias is false"},
    {"train.moe_capacity", [](const Settings& s) { return s.train.moe_capacity >= static_cast<double>(s.mesh.ep); },
     "all rows together are mesh.ep even shares"},
    {"model.rotary_base", [](const Settings& s) { return s.model.is_gpt(); }, "a gpt learns its positions"},
    {"model.rotary_attention_factor", [](const Settings& s) { return s.model.rotary_scaling != "yarn"; },
     "only model.rotary_scaling = \"yarn\" has it"},
    {"optim.decay_fraction", [](const Settings& s) { return s.optim.schedule != "wsd" || s.optim.decay_steps > 0; },
     "only optim.schedule = \"wsd\" without optim.decay_steps has it"},
    {"optim.decay_steps", [](const Settings& s) { return s.optim.schedule != "wsd"; },
     "only optim.schedule = \"wsd\" has it"},
    {"optim.min_lr_ratio", [](const Settings& s) { return s.optim.schedule == "constant"; },
     "optim.schedule is constant"},
    {"optim.shard_group", [](const Settings& s) { return s.optim.zero == 0; }, "optim.zero is 0"},
    {"optim.prefetch", [](const Settings& s) { return s.optim.zero < 3; }, "optim.zero is below 3"},
    {"optim.muon_momentum", [](const Settings& s) { return s.optim.name != "muon"; }, "optim.name is not muon"},
    {"optim.muon_scale", [](const Settings& s) { return s.optim.name != "muon"; }, "optim.name is not muon"},
    {"guard.spike_zscore", [](const Settings& s) { return s.guard.spike == "ignore"; }, "guard.spike is ignore"},
    {"guard.window", [](const Settings& s) { return s.guard.spike == "ignore"; }, "guard.spike is ignore"},
    {"guard.max_skips", [](const Settings& s) { return s.guard.nonfinite != "skip" && s.guard.spike != "skip"; },
     "no step is skipped"},
    {"guard.rollback_steps", [](const Settings& s) { return !s.guard.rolls_back(); }, "no guard rolls back"},
    {"guard.max_rollbacks", [](const Settings& s) { return !s.guard.rolls_back(); }, "no guard rolls back"},
    {"checkpoint.every_steps", [](const Settings& s) { return s.checkpoint.dir.empty(); }, "checkpoint.dir is empty"},
    {"checkpoint.memory_dir", [](const Settings& s) { return s.checkpoint.dir.empty(); }, "checkpoint.dir is empty"},
};

// Where no model is described, gives the keys of [model] that are not set the values of the checkpoint that the run
// begins with, or that it resumes from. Why it cannot be read is reported by who loads it.
void take_model(ConfigSchema& schema, const CheckpointConfig& checkpoint) {
  if (checkpoint.load.empty() || schema.provenance("model.layers") != Provenance::by_default) return;
  std::optional<ckpt::Found> found;
  try {
    found = ckpt::choose_complete(checkpoint.load);
  } catch (const Error&) {
    if (checkpoint.dir.empty() || !(found = ckpt::newest_complete(checkpoint.dir))) return;
  }
  const std::optional<nn::ModelConfig> model = model_of(*found->manifest);
  if (!model) return;
  nn::ModelConfig values = *model;
  ConfigSchema section;
  section.section("model", "The model.", values, nn::kModelFields);
  schema.load_text(section.dump(false), found->path, Provenance::checkpoint);
}

template <class F>
Loaded load_with(const std::vector<std::string>& assignments, std::optional<std::int64_t> world, bool begins, F&& read,
                 const std::function<void(Settings&)>& adjust = {}) {
  Loaded loaded;
  ConfigSchema schema;
  bind(schema, loaded.settings);
  read(schema);
  for (const std::string& assignment : assignments) schema.set(assignment);
  if (begins) take_model(schema, loaded.settings.checkpoint);
  if (adjust) adjust(loaded.settings);
  const bool is_auto = loaded.settings.mesh.dp == kWord;
  if (is_auto) loaded.dp_sizes = choose_dp(loaded.settings);
  for (const nn::ModelProblem& problem : problems_between(loaded.settings))
    schema.add_problem(problem.key, problem.message);
  data::validate(loaded.settings.data, schema);
  schema.throw_if_problems();
  if (is_auto && world) take_ranks(loaded.settings.mesh, loaded.dp_sizes, *world);
  loaded.warnings = clamp(loaded.settings);
  for (const Idle& row : kIdle) {
    if (!row.idle(loaded.settings) || schema.is_default(row.key)) continue;
    loaded.warnings.push_back(fmt::format("{} has no effect: {}", row.key, row.because));
  }
  std::ranges::move(oddities(loaded.settings), std::back_inserter(loaded.warnings));
  const std::int64_t dp = loaded.settings.mesh.dp;
  if (is_auto && !world) loaded.settings.mesh.dp = kWord;
  loaded.resolved = schema.dump(true);
  loaded.values = schema.dump(false);
  loaded.settings.mesh.dp = dp;
  return loaded;
}

}  // namespace

std::vector<std::string> clamp(Settings& settings) {
  std::int64_t& warmup = settings.optim.warmup_steps;
  const std::int64_t steps = settings.train.steps;
  if (warmup <= steps) return {};
  std::string warning = fmt::format(
      "optim.warmup_steps = {} is clamped to train.steps = {}: the learning rate does nothing but rise", warmup, steps);
  warmup = steps;
  return {std::move(warning)};
}

bool exchanges_slots(const Settings& settings) {
  const std::string& dispatch = settings.train.moe_dispatch;
  if (settings.mesh.ep == 1 || dispatch == "all_gather") return false;
  return dispatch == "all_to_all" || settings.model.experts_per_token <= settings.mesh.ep;
}

// Compares what a rank moves for each of its tokens, in heads and times cp / (cp - 1), forward and backward: keys and
// values are gathered twice, and their gradients reduced; queries, keys and values are exchanged twice, their gradients
// once, outputs twice and their gradients once. A ring moves no less than a gather does, in less memory.
nn::CpType cp_type_of(const Settings& settings) {
  using enum nn::CpType;
  const mesh::MeshConfig& mesh = settings.mesh;
  const std::int64_t heads = settings.model.heads, kv_heads = settings.model.kv();
  if (mesh.cp_type != "auto") return nn::cp_type_from(mesh.cp_type);
  if (mesh.cp == 1 || kv_heads % (mesh.tp * mesh.cp) != 0) return all_gather;
  const std::int64_t gathered = 3 * 2 * kv_heads * mesh.cp, exchanged = 3 * (heads + 2 * kv_heads) + 3 * heads;
  return exchanged <= gathered || settings.run.device == "cuda" ? all_to_all : all_gather;
}

data::BatchShape batch_of(const Settings& settings) {
  const TrainConfig& train = settings.train;
  return {.seq = settings.model.seq,
          .global_batch = train.global_batch,
          .ramp = data::ramp_up(train.rampup_start, train.rampup_increment, train.rampup_samples, train.global_batch)};
}

std::string to_toml(const Settings& settings) {
  Settings copy = settings;
  ConfigSchema schema;
  bind(schema, copy);
  return schema.dump(false);
}

std::optional<nn::ModelConfig> model_of(const ckpt::Manifest& manifest) {
  if (manifest.config.empty()) return std::nullopt;
  Settings settings;
  ConfigSchema schema;
  bind(schema, settings);
  schema.load_text(manifest.config, "the checkpoint's configuration");
  if (!schema.problems().empty()) return std::nullopt;
  return settings.model;
}

Loaded load(const std::string& path, const std::vector<std::string>& assignments, std::optional<std::int64_t> world) {
  return load_with(assignments, world, true, [&](ConfigSchema& schema) { schema.load_file(path); });
}

Loaded load_text(std::string_view text, const std::string& name, const std::vector<std::string>& assignments,
                 const std::function<void(Settings&)>& adjust) {
  return load_with(
      assignments, std::nullopt, false, [&](ConfigSchema& schema) { schema.load_text(text, name); }, adjust);
}

}  // namespace ms::train
