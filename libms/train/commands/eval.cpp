// One of the commands of train/commands/commands.h: the perplexity of a model on data sets.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <span>

#include "base/json.h"
#include "base/progress.h"
#include "base/text.h"
#include "ckpt/command_support.h"
#include "data/eval_set.h"
#include "train/checkpoint/load.h"
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

// Sums the losses of a data set. Collective over the world.
double sum_losses(Engine& engine, const Plan& plan, const data::EvalSet& set,
                  const std::function<void(std::int64_t windows)>& progress) {
  const std::int64_t batch = plan.settings.train.global_batch, rows = batch / plan.mesh.dp;
  const auto seq = static_cast<std::size_t>(plan.settings.model.seq);
  std::vector<std::int32_t> tokens(engine.needs_input() ? static_cast<std::size_t>(rows) * seq : 0);
  std::vector<std::int32_t> targets(tokens.size());
  std::vector<std::int32_t> starts(plan.settings.data.reset_attention ? tokens.size() : 0);
  double sum = 0;
  for (std::int64_t first = 0; first < set.windows(); first += batch) {
    std::ranges::fill(tokens, 0);
    std::ranges::fill(targets, -1);
    const std::int64_t mine = first + rows * engine.at().dp;
    for (std::int64_t row = 0; row < rows && mine + row < set.windows() && engine.needs_input(); ++row) {
      const std::size_t at = static_cast<std::size_t>(row) * seq;
      set.fill(mine + row, std::span(tokens).subspan(at, seq), std::span(targets).subspan(at, seq),
               starts.empty() ? std::span<std::int32_t>() : std::span(starts).subspan(at, seq));
    }
    sum += engine.sum_losses(tokens, targets, starts);
    progress(std::min(first + batch, set.windows()));
  }
  return sum;
}

std::string text_of(const std::vector<SetLoss>& losses) {
  TextTable table({{"data set"}, {"tokens", Align::right}, {"loss", Align::right}, {"perplexity", Align::right}});
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
  const ckpt::Found found = choose_checkpoint(args.get("PATH"));
  const Loaded loaded = load_for_inference(found, args.list("set"), adjust_to_evaluate);
  const nn::ModelConfig& model = loaded.settings.model;
  std::vector<data::EvalSet> sets;
  std::int64_t windows = 0;
  for (const data::EvalSource& source : data::eval_sources(args.list("data"), loaded.settings.data)) {
    windows += sets.emplace_back(source, model.seq, model.vocab, samples).windows();
  }
  const auto evaluate = [&](Engine& engine, const Plan& plan, const comm::World& world) {
    SystemClock clock;
    std::optional<Progress> progress;
    if (world.rank() == 0) progress.emplace("eval", windows, "sequences", clock);
    std::vector<SetLoss> losses;
    std::int64_t before = 0;
    for (const data::EvalSet& set : sets) {
      const double sum = sum_losses(engine, plan, set, [&](std::int64_t done) {
        if (progress) progress->update(before + done, set.source().name);
      });
      before += set.windows();
      losses.push_back({set.source().name, set.source().prefix, set.predictions(), sum});
    }
    if (!progress) return;
    progress->finish();
    ckpt::print_result(args, json_of(found, losses), text_of(losses));
  };
  return static_cast<int>(launch_inference(loaded, {found, evaluate}));
}

}  // namespace

Command eval_command() {
  return {
      .name = "eval",
      .summary = "perplexity of a checkpoint on data sets",
      .positionals = {ckpt::checkpoint_positional()},
      .options = {{.name = "data",
                   .value = "NAME=PREFIX",
                   .doc = "A token file to evaluate on, and what to call it; PREFIX alone: by its last component. "
                          "Otherwise the validation data of the checkpoint's configuration.",
                   .many = true},
                  {.name = "samples",
                   .value = "N",
                   .doc = "Evaluates N sequences of each data set, spread evenly; otherwise all."},
                  inference_set_option(),
                  ckpt::json_option()},
      .run = run_eval,
      .description =
          "Predicts every token of a data set but the first, once, in sequences of model.seq tokens that lie end to "
          "end, and prints the mean loss in nats and its exponential, the perplexity. Where the run had "
          "data.reset_attention, a token sees only its own document here, too. The checkpoint may be of a run, "
          "or of a Hugging Face model that 'ms-ckpt import' made.\n\n"
          "Model, layout and type are those of the checkpoint's configuration; --set changes them, as in --set "
          "mesh.tp=2 --set train.microbatch=8. The result does not depend on the layout, but for the rounding of "
          "GEMMs. Under mpirun or srun --mpi=pmix each process is a rank; anywhere else the ranks are threads of this "
          "process. Neither gradients nor an optimizer take memory, and nothing is written."};
}

}  // namespace ms::train
