// A command of ms-data: what a configuration feeds to the ranks of a run.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "base/json.h"
#include "base/log.h"
#include "base/print.h"
#include "data/chain.h"
#include "data/note.h"
#include "data/target_mask.h"
#include "mesh/mesh.h"
#include "train/checkpoint/rollbacks.h"
#include "train/commands/commands.h"
#include "train/run/data_feed.h"

namespace ms::train {
namespace {

// Tokenizers by token file, nullptr where none is known.
class Tokenizers {
 public:
  explicit Tokenizers(std::int64_t vocab_size) : vocab_size_(vocab_size) {}
  const data::Tokenizer* of(const std::string& prefix) {
    const auto found = known_.find(prefix);
    if (found != known_.end()) return found->second.get();
    return known_.emplace(prefix, data::tokenizer_of(prefix, vocab_size_)).first->second.get();
  }

 private:
  std::int64_t vocab_size_;
  std::map<std::string, std::unique_ptr<data::Tokenizer>> known_;
};

struct FedSample {
  std::int64_t number = 0;  // in the run's order
  std::int64_t dp = 0, microbatch = 0;
  data::SampleOrigin origin;
  std::vector<std::int32_t> tokens, starts;
  // The runs of tokens that the loss counts as targets, begins and ends; nullopt: it counts all of the run's data.
  std::optional<std::vector<std::array<std::size_t, 2>>> targets = {};
  std::optional<std::string> text = {};

  std::set<std::int32_t> document_starts() const {
    std::set<std::int32_t> found{starts.begin(), starts.end()};
    if (!origin.begins_document) found.erase(0);
    return found;
  }
};

// Returns the text with each run of targets in double brackets.
std::string with_targets(const FedSample& sample, const data::Tokenizer& tokenizer) {
  std::string text;
  const std::span<const std::int32_t> tokens(sample.tokens);
  std::size_t at = 0;
  const auto add = [&](std::size_t end, std::string_view before, std::string_view behind) {
    if (end == at) return;
    text += fmt::format("{}{}{}", before, tokenizer.decode(tokens.subspan(at, end - at), at > 0), behind);
    at = end;
  };
  for (const auto& [begin, end] : *sample.targets) {
    add(begin, "", "");
    add(end, "[[", "]]");
  }
  add(tokens.size(), "", "");
  return text;
}

void print_sample(const FedSample& sample) {
  const std::set<std::int32_t> starts = sample.document_starts();
  print_out("sample {}: dp rank {}, microbatch {}, {} from token {} on, {}\n", sample.number, sample.dp,
            sample.microbatch, sample.origin.prefix, sample.origin.token,
            starts.empty() ? "within a document" : fmt::format("documents begin at {}", fmt::join(starts, ", ")));
  print_out("{}\n\n", sample.text ? *sample.text : fmt::format("{}", fmt::join(sample.tokens, " ")));
}

// How even attention's work is over dp ranks: the largest over the mean.
struct Evenness {
  double fed = 1, run_order = 1;
};

Evenness evenness_of(const data::Loader& loader, std::int64_t step, const std::vector<std::int64_t>& order, int dp) {
  const std::vector<double> work = loader.attention_work(step);
  std::vector<std::int64_t> run_order = order;
  std::ranges::sort(run_order);
  return {.fed = data::imbalance(work, order, dp), .run_order = data::imbalance(work, run_order, dp)};
}

Json json_of(const FedSample& sample) {
  Json json{{"sample", sample.number},
            {"dp", sample.dp},
            {"microbatch", sample.microbatch},
            {"source", sample.origin.prefix},
            {"first_token", sample.origin.token},
            {"document_starts", sample.document_starts()},
            {"tokens", sample.tokens},
            {"text", sample.text ? Json(*sample.text) : Json(nullptr)}};
  if (sample.targets) json["targets"] = *sample.targets;
  return json;
}

// The runs of tokens that are not marked as ignored.
std::vector<std::array<std::size_t, 2>> target_runs(std::span<const std::int32_t> tokens) {
  std::vector<std::array<std::size_t, 2>> runs;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0) continue;
    if (runs.empty() || runs.back()[1] != i) runs.push_back({i, i});
    runs.back()[1] = i + 1;
  }
  return runs;
}

int run_sample(const Args& args) {
  const Loaded loaded = load(args);
  const Settings& settings = loaded.settings;
  const mesh::Mesh mesh =
      mesh::make_mesh(settings.mesh.dp, settings.mesh.pp, settings.mesh.tp, ranks_of(settings), 1, settings.mesh.cp);
  if (!args.has("step"))
    throw user_error("cli.value", "--step N is missing", "steps count from 1, as in metrics.jsonl");
  const std::int64_t step = args.get_int("step", 1, settings.train.steps) - 1;
  data::Loader loader = open_data(settings);
  if (const std::string& saved = settings.checkpoint.dir; !saved.empty()) {
    const std::vector<Rollback> rollbacks = parse_rollbacks(read_rollbacks(saved), rollbacks_path(saved));
    loader.start_at(0, 0, skips_of(rollbacks, loader.fingerprint(), static_cast<std::uint64_t>(settings.train.seed)));
  }
  const std::int64_t rows = loader.shape().batch(step) / settings.mesh.dp;  // of a dp rank
  std::int64_t first = 0, end = rows * settings.mesh.dp;
  if (args.has("rank")) {
    first = rows * mesh.batch_part(mesh.coord(static_cast<int>(args.get_int("rank", 0, mesh.size() - 1))).dp);
    end = first + rows;
  }

  const data::Division division{mesh.batch_parts(), settings.train.microbatch};
  const std::vector<std::int64_t> order = loader.rows(step, division);

  std::string chain;
  if (args.has("chain")) {
    chain = data::kChainStart;
    for (std::int64_t i = 0; i <= step; ++i) chain = data::extend_chain(chain, loader.digest(i));
  }

  std::optional<Evenness> evenness;
  if (loader.has_starts()) evenness = evenness_of(loader, step, order, mesh.batch_parts());

  Tokenizers tokenizers(settings.model.vocab);
  Json samples = Json::array();
  const auto seq = static_cast<std::size_t>(settings.model.seq);
  std::vector<std::int32_t> tokens(seq + 1);
  for (std::int64_t row = first; row < end; ++row) {
    const std::int64_t of_batch = order[static_cast<std::size_t>(row)];
    FedSample sample{.number = loader.shape().first_sample(step) + of_batch,
                     .dp = row / rows,
                     .microbatch = row % rows / settings.train.microbatch,
                     .origin = loader.origin(step, of_batch),
                     .tokens = {},
                     .starts = std::vector<std::int32_t>(seq)};
    loader.fill(step, of_batch, 1, tokens.data(), sample.starts.data());
    sample.tokens.assign(tokens.begin(), tokens.end() - 1);
    if (loader.has_mask()) sample.targets = target_runs(sample.tokens);
    data::remove_marks(sample.tokens);
    if (const data::Tokenizer* tokenizer = tokenizers.of(sample.origin.prefix)) {
      const bool is_marked = sample.targets && !args.has("json");
      sample.text = is_marked ? with_targets(sample, *tokenizer) : tokenizer->decode(sample.tokens);
    }
    if (args.has("json")) {
      samples.push_back(json_of(sample));
    } else {
      print_sample(sample);
    }
  }
  if (args.has("json")) {
    Json shown{{"schema", 1}, {"step", step + 1}, {"samples", samples}};
    if (!chain.empty()) shown["data_chain"] = chain;
    if (evenness) shown["attention_max_over_mean"] = {{"fed", evenness->fed}, {"run_order", evenness->run_order}};
    print_out("{}\n", shown.dump(1));
    return 0;
  }
  if (evenness) {
    print_out("attention's work, the busiest dp rank over the mean: {:.3f}; {:.3f} in the run's order\n", evenness->fed,
              evenness->run_order);
  }
  if (!chain.empty()) print_out("data_chain after step {}: {}\n", step + 1, chain);
  return 0;
}

}  // namespace

Command sample_command() {
  return {
      .name = "sample",
      .summary = "show the samples of a step",
      .positionals = {config_argument()},
      .options = {{"step", "N", "The step, counted from 1 as in metrics.jsonl."},
                  {"rank", "R", "Show only the samples of this rank's pipeline (default: the whole global batch)."},
                  {"chain", "",
                   "Also print the step's data_chain, as in metrics.jsonl. This reads all earlier steps, too."},
                  set_option(),
                  json_option()},
      .run = run_sample,
      .description =
          "Reads data as the ranks do, without a run. Prints the samples of a step, their places in the token files, "
          "and their text, or token ids if the tokenizer is not known. Where the data have a loss mask, what the loss "
          "counts is in double brackets; in JSON, targets has the begin and the end of each such run of tokens. The "
          "order is that of a run that started at step "
          "0 with this configuration. Samples that rollbacks of the run in checkpoint.dir left out are not shown."};
}

}  // namespace ms::train
