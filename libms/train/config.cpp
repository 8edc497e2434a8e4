#include "train/config.h"

#include "base/error.h"

namespace ms::train {

void bind(ConfigSchema& schema, Settings& settings) {
  schema.section("model", "The model.", settings.model, nn::kModelFields);
  schema.section("mesh", "How the ranks are arranged: dp x pp x tp of them, tp fastest.", settings.mesh,
                 mesh::kMeshFields);
  schema.section("train", "The training loop.", settings.train, kTrainFields);
  schema.section("optim", "The optimizer.", settings.optim, optim::kOptimFields);
  schema.section("data", "Token files, as 'ms-data encode' writes them.", settings.data, data::kDataFields);
  schema.section("run", "This run.", settings.run, kRunFields);
}

namespace {

void check_rules(const Settings& settings, ConfigSchema& schema) {
  const TrainConfig& train = settings.train;
  const mesh::MeshConfig& mesh = settings.mesh;
  for (const nn::ModelProblem& problem : nn::check_model(settings.model, mesh, train.microbatch)) {
    schema.add_problem(problem.key, problem.message);
  }
  const std::int64_t unit = mesh.dp * train.microbatch;
  if (train.global_batch % unit != 0) {
    schema.add_problem("train.global_batch",
                       fmt::format("train.global_batch = {} is not divisible by mesh.dp x train.microbatch = {}",
                                   train.global_batch, unit));
  } else if (mesh.chunks > 1 && mesh.pp > 1 && (train.global_batch / unit) % mesh.pp != 0) {
    schema.add_problem(
        "train.global_batch",
        fmt::format("{} microbatches per step; the interleaved schedule needs a multiple of mesh.pp = {}",
                    train.global_batch / unit, mesh.pp));
  }
  if (mesh.chunks > 1 && mesh.pp == 1) {
    schema.add_problem("mesh.chunks", "mesh.chunks > 1 needs mesh.pp > 1: chunks interleave pipeline stages");
  }
  if (settings.optim.warmup_steps > train.steps) {
    schema.add_problem("optim.warmup_steps",
                       fmt::format("{} warm-up steps in a run of {} steps", settings.optim.warmup_steps, train.steps));
  }
  data::validate(settings.data, schema);
}

}  // namespace

Loaded load(const std::string& path, const std::vector<std::string>& assignments) {
  Loaded loaded;
  ConfigSchema schema;
  bind(schema, loaded.settings);
  schema.load_file(path);
  for (const std::string& assignment : assignments) schema.set(assignment);
  check_rules(loaded.settings, schema);
  schema.throw_if_problems();
  loaded.resolved = schema.dump(true);
  return loaded;
}

}  // namespace ms::train
