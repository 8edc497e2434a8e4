// One of the commands of train/commands/commands.h: the perplexity of a model on data sets.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/progress.h"
#include "base/text.h"
#include "ckpt/command_support.h"
#include "data/eval_batches.h"
#include "train/commands/commands.h"
#include "train/run/launch.h"

namespace ms::train {
namespace {

struct SetLoss {
  std::string name, prefix;
  std::int64_t tokens = 0;  // predicted
  double sum = 0;           // of their losses
  double loss() const { return sum / static_cast<double>(tokens); }
  double perplexity() const { return std::exp(loss()); }
};

// A few microbatches for each stage, so that the pipeline is busy most of the time.
void adjust_to_evaluate(Settings& settings) {
  const mesh::MeshConfig& mesh = settings.mesh;
  settings.train.global_batch = mesh.dp * settings.train.microbatch * (mesh.pp > 1 ? 4 * mesh.pp : 1);
}

// Sums the losses of a data set, whose first batch is number `batch` of all. Collective over the world.
double sum_losses(Engine& engine, DataFeed& feed, std::int64_t batch, std::int64_t batches,
                  const std::function<void(std::int64_t batches)>& progress) {
  std::vector<std::int32_t> tokens, targets;
  double sum = 0;
  for (std::int64_t done = 0; done < batches;) {
    data::Batch read;
    if (engine.needs_input()) {
      read = feed.next({.step = batch + done});
      for (const auto& [rows, copy] : {std::pair(&read.tokens, &tokens), std::pair(&read.targets, &targets)}) {
        copy->resize(static_cast<std::size_t>(rows->size()));
        rows->copy_to(copy->data());
      }
      std::ranges::replace(tokens, data::EvalSet::kNoTarget, 0);  // behind the end: nothing is predicted there
    }
    sum += engine.sum_losses(tokens, targets, read.starts, read.patches);
    if (engine.needs_input()) feed.release();
    progress(++done);
  }
  return sum;
}

std::string text_of(const std::vector<SetLoss>& losses) {
  TextTable table(columns("data set|tokens>|loss>|perplexity>"));
  for (const SetLoss& each : losses) {
    table.row({each.name, fmt::format("{}", each.tokens), fmt::format("{:.4f}", each.loss()),
               fmt::format("{:.4f}", each.perplexity())});
  }
  return table.str();
}

std::string json_of(const ckpt::Found& checkpoint, const std::vector<SetLoss>& losses) {
  Json sets = Json::array();
  for (const SetLoss& each : losses) {
    sets.push_back({{"name", each.name},
                    {"prefix", each.prefix},
                    {"tokens", each.tokens},
                    {"loss", each.loss()},
                    {"perplexity", each.perplexity()}});
  }
  const Json json{{"schema", 1}, {"checkpoint", checkpoint.path}, {"step", checkpoint.step}, {"sets", sets}};
  return json.dump(2) + "\n";
}

int run_eval(const Args& args) {
  const std::int64_t samples = args.has("samples") ? args.get_int("samples", 1) : 0;
  const ckpt::Found found = ckpt::choose_complete(args.get("PATH"));
  const Loaded loaded = load_for_inference(found, args.list("set"), adjust_to_evaluate);
  const nn::ModelConfig& model = loaded.settings.model;
  const std::vector<data::EvalSource> sources = data::eval_sources(args.list("data"), loaded.settings.data);
  const std::int64_t global_batch = loaded.settings.train.global_batch;
  const auto open = [&] {
    std::vector<data::EvalSet> sets;
    for (const data::EvalSource& source : sources)
      sets.emplace_back(source, model.seq, model.vocab, samples, model.patch_size);
    return std::make_unique<data::EvalBatches>(std::move(sets), global_batch);
  };
  const auto evaluate = [&](Engine& engine, const Plan& plan, const comm::World& world, DataFeed* feed) {
    const std::vector<data::EvalFacts::Set> sets = data::EvalFacts::parse(feed->facts()).sets;
    std::int64_t windows = 0, batches = 0;
    for (const data::EvalFacts::Set& set : sets) windows += set.windows, batches += set.batches(global_batch);
    feed->begin({.end = batches}, plan.batch, false);
    SystemClock clock;
    std::optional<Progress> progress;
    if (world.rank() == 0) progress.emplace("eval", windows, "sequences", clock);
    std::vector<SetLoss> losses;
    std::int64_t windows_before = 0, batch = 0;
    for (std::size_t i = 0; i < sets.size(); ++i) {
      const double sum = sum_losses(engine, *feed, batch, sets[i].batches(global_batch), [&](std::int64_t done) {
        if (progress)
          progress->update(windows_before + std::min(done * global_batch, sets[i].windows), sources[i].name);
      });
      windows_before += sets[i].windows;
      batch += sets[i].batches(global_batch);
      losses.push_back({sources[i].name, sources[i].prefix, sets[i].predictions, sum});
    }
    if (!progress) return;
    progress->finish();
    ckpt::print_result(args, json_of(found, losses), text_of(losses));
  };
  return static_cast<int>(launch_inference(loaded, {.checkpoint = found, .use = evaluate, .data = open}));
}

}  // namespace

Command eval_command() {
  return {.name = "eval",
          .summary = "compute the perplexity of a checkpoint on data sets",
          .positionals = {ckpt::checkpoint_positional()},
          .options = {{.name = "data",
                       .value = "NAME=PREFIX",
                       .doc = "The token file to evaluate on, and a name for it (default: the last component of "
                              "PREFIX). Without --data: the validation data of the checkpoint's configuration.",
                       .many = true},
                      {"samples", "N", "Evaluate N sequences of each data set, spaced evenly (default: all)."},
                      inference_set_option(),
                      ckpt::json_option()},
          .run = run_eval,
          .description =
              "Reads a data set in consecutive sequences of model.seq tokens, and predicts each token except the first "
              "once. Prints the mean loss in nats and the perplexity, its exponential. If the run had "
              "data.reset_attention, a token attends only to its own document here, too. The checkpoint may come from "
              "a run, or from a Hugging Face model that 'ms-ckpt import' converted.\n\nModel, layout and data type are "
              "those of the checkpoint's configuration; --set changes them, as in --set mesh.tp=2 --set "
              "train.microbatch=8. The layout changes the result only by the rounding of GEMMs. Under mpirun or srun "
              "--mpi=pmix each process is a rank; without a launcher the ranks are threads of this process. No memory "
              "is allocated for gradients and the optimizer, and no file is written."};
}

}  // namespace ms::train
