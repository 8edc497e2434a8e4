#include "train/config.h"

#include "base/error.h"
#include "data/tokenizer.h"

namespace ms::train {

void bind(ConfigSchema& schema, Settings& settings) {
  schema.section("model", "The model.", settings.model, nn::kModelFields);
  schema.section("mesh", "How the ranks are arranged: dp x pp x tp of them, tp fastest.", settings.mesh,
                 mesh::kMeshFields);
  schema.section("overlap", "Which messages travel under compute. The results are the same, but for tp.",
                 settings.overlap, kOverlapFields);
  schema.section("train", "The training loop.", settings.train, kTrainFields);
  schema.section("optim", "The optimizer.", settings.optim, optim::kOptimFields);
  schema.section("data", "Token files, as 'ms-data encode' writes them.", settings.data, data::kDataFields);
  schema.section("checkpoint", "Saving the state of training, and going on from it.", settings.checkpoint,
                 kCheckpointFields);
  schema.section("trace", "What each rank writes down about what it does, for ms-tracepp.", settings.trace,
                 trace::kTraceFields);
  schema.section("run", "This run.", settings.run, kRunFields);
}

namespace {

// Schedules and groups are tables in memory: these keep them within seconds and gigabytes.
constexpr std::int64_t kMaxRanks = 1 << 20;
constexpr std::int64_t kMaxMicrobatches = 1 << 16;

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
  if (train.global_batch % unit != 0) {
    add("train.global_batch", fmt::format("train.global_batch = {} is not divisible by mesh.dp x train.microbatch = {}",
                                          train.global_batch, unit));
  } else if (mesh.chunks > 1 && mesh.pp > 1 && (train.global_batch / unit) % mesh.pp != 0) {
    add("train.global_batch",
        fmt::format("{} microbatches per step; the interleaved schedule needs a multiple of mesh.pp = {}",
                    train.global_batch / unit, mesh.pp));
  }
  if (mesh.chunks > 1 && mesh.pp == 1) {
    add("mesh.chunks", "mesh.chunks > 1 needs mesh.pp > 1: chunks interleave pipeline stages");
  }
  if (settings.optim.warmup_steps > train.steps) {
    add("optim.warmup_steps",
        fmt::format("{} warm-up steps in a run of {} steps", settings.optim.warmup_steps, train.steps));
  }
  const std::int64_t ranks = mesh.dp * mesh.pp * mesh.tp;  // each below 2^25
  if (ranks > kMaxRanks) add("mesh.dp", fmt::format("{} ranks, at most {} are possible", ranks, kMaxRanks));
  if (train.global_batch / unit > kMaxMicrobatches) {
    add("train.global_batch",
        fmt::format("{} microbatches in a step, at most {} are possible", train.global_batch / unit, kMaxMicrobatches));
  }
  const bool one_chunk_only = mesh.schedule == "gpipe" || mesh.schedule == "zb-h1";
  if (!mesh.schedule.ends_with(".csv") && mesh.schedule != "1f1b" && !one_chunk_only) {
    add("mesh.schedule",
        fmt::format("no schedule is called '{}': 1f1b, zb-h1, gpipe, or a file ending in .csv", mesh.schedule));
  }
  if (one_chunk_only && mesh.chunks > 1) {
    add("mesh.schedule", fmt::format("{} has no interleaved form: mesh.chunks must be 1", mesh.schedule));
  }
  if (settings.run.sample_tokens > 0 && settings.model.vocab != data::ByteTokenizer::kVocabSize) {
    add("run.sample_tokens", fmt::format("text is generated with the byte tokenizer, whose vocabulary is "
                                         "{}, but model.vocab = {}; set run.sample_tokens = 0",
                                         data::ByteTokenizer::kVocabSize, settings.model.vocab));
  }
  if (train.fp8 && train.dtype != "bf16")
    add("train.fp8", "products in eight bits are of bf16: train.dtype = \"bf16\"");
  if (settings.run.device == "cuda") {
    if (train.dtype != "bf16") add("run.device", "attention on a GPU is in bf16: train.dtype = \"bf16\"");
    constexpr std::int64_t kHeadPiece = 8;
    if (const std::int64_t head_dim = settings.model.hidden / settings.model.heads; head_dim % kHeadPiece != 0)
      add("run.device", fmt::format("heads of {}: attention on a GPU takes multiples of {}", head_dim, kHeadPiece));
    constexpr std::int64_t kWidest = 32768;  // kernels/norm_rows.h
    if (settings.model.hidden > kWidest)
      add("run.device",
          fmt::format("model.hidden = {}: norms on a GPU have {} columns at most", settings.model.hidden, kWidest));
  }
  if (settings.run.dir.empty()) add("run.dir", "the run needs a directory");
  return problems;
}

namespace {

template <class F>
Loaded load_with(const std::vector<std::string>& assignments, F&& read) {
  Loaded loaded;
  ConfigSchema schema;
  bind(schema, loaded.settings);
  read(schema);
  for (const std::string& assignment : assignments) schema.set(assignment);
  for (const nn::ModelProblem& problem : problems_between(loaded.settings))
    schema.add_problem(problem.key, problem.message);
  data::validate(loaded.settings.data, schema);
  schema.throw_if_problems();
  loaded.resolved = schema.dump(true);
  return loaded;
}

}  // namespace

std::string to_toml(const Settings& settings) {
  Settings copy = settings;
  ConfigSchema schema;
  bind(schema, copy);
  return schema.dump(false);
}

Loaded load(const std::string& path, const std::vector<std::string>& assignments) {
  return load_with(assignments, [&](ConfigSchema& schema) { schema.load_file(path); });
}

Loaded load_text(std::string_view text, const std::string& name, const std::vector<std::string>& assignments) {
  return load_with(assignments, [&](ConfigSchema& schema) { schema.load_text(text, name); });
}

}  // namespace ms::train
