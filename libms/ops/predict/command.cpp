#include "predict/command.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/print.h"
#include "base/text.h"
#include "base/user_path.h"
#include "predict/report.h"
#include "unpack/csv.h"

namespace ms::predict {
namespace {

constexpr double kBin_days = 1;
constexpr double kShortestHistory_days = 30;
constexpr std::int64_t kMostFolds = 20;
constexpr std::int64_t kMostSeeds = 100;
constexpr std::int64_t kMostUnits = 1000000;
constexpr int kTrainSeeds = 2;  // of the evaluation that train makes
constexpr std::size_t kReasons = 3;

// Returns the time of an option in seconds; refuses a number without a unit.
double seconds_of(const Args& args, std::string_view name) {
  const std::string text = args.get(name);
  if (unpack::parse_number(text).value_or(0) != 0) {
    throw user_error("predict.time", fmt::format("--{} {} needs a unit", name, plain_text(text, 40)),
                     "30d is thirty days, 4h four hours");
  }
  return args.get_seconds(name);
}

double days_of(const Args& args, std::string_view name, double least) {
  const double days = seconds_of(args, name) / kDay_s;
  if (!(days >= least)) throw user_error("predict.time", fmt::format("--{} is too short", name), "30d is thirty days");
  return days;
}

Dataset dataset_of(const Args& args) {
  if (!args.has("faults")) {
    throw user_error("predict.faults", "--faults is missing: a model learns from nodes that failed",
                     "a CSV with node, time and kind; ms-diag(1) lists the other layouts");
  }
  Dataset data = read_dataset({.faults = args.get("faults"),
                               .nodes = args.get("nodes"),
                               .telemetry = args.list("telemetry"),
                               .bin_days = kBin_days});
  for (const std::string& note : data.notes) print_err("ms-diag: note: {}\n", note);
  return data;
}

std::vector<Training> trainings_of(const Args& args) {
  std::vector<Training> all;
  for (const std::string& name : split(args.get("training"), ',')) {
    const auto known = {Training::fixed, Training::expanding, Training::sliding};
    const auto found = std::find_if(known.begin(), known.end(), [&](Training t) { return to_string(t) == name; });
    if (found == known.end()) {
      throw user_error("predict.training", fmt::format("there is no training '{}'", plain_text(name, 40)),
                       "fixed, expanding or sliding, or several with commas");
    }
    all.push_back(*found);
  }
  return all;
}

EvaluateOptions options_of(const Args& args) {
  std::vector<std::string> notes;
  EvaluateOptions options{.task = {.lead_days = days_of(args, "lead", 0),
                                   .horizon_days = days_of(args, "horizon", kBin_days / 24),
                                   .target = args.get("target")},
                          .methods = methods_of(args.get("models"), notes),
                          .trainings = trainings_of(args),
                          .window_days = days_of(args, "window", kBin_days),
                          .step_days = days_of(args, "step", kBin_days / 24),
                          .folds = static_cast<int>(args.get_int("folds", 1, kMostFolds)),
                          .seeds = static_cast<int>(args.get_int("seeds", 1, kMostSeeds)),
                          .figures = {.k = static_cast<std::size_t>(args.get_int("top", 1, kMostUnits)),
                                      .recall = args.get_double("recall")},
                          .oracle = args.get("oracle")};
  if (!(options.figures.recall > 0 && options.figures.recall <= 1)) {
    throw user_error("predict.recall", "--recall is a part of all failures, from 0 to 1");
  }
  for (const std::string& note : notes) print_err("ms-diag: note: {}\n", note);
  return options;
}

std::string model_file(const Args& args) {
  if (args.get("FILE").empty()) throw user_error("predict.file", "name the file of the model");
  return args.get("FILE");
}

int evaluate_action(const Args& args) {
  const EvaluateOptions options = options_of(args);
  const Costs costs{.out_hours = seconds_of(args, "out") / 3600,
                    .gpus_per_node = args.get_double("gpus"),
                    .failure_gpu_hours = args.has("failure-gpu-hours") ? args.get_double("failure-gpu-hours") : 0};
  const Evaluation evaluation = evaluate(dataset_of(args), options);
  write_out(args.has("json") ? evaluation_json(evaluation, options, costs)
                             : evaluation_text(evaluation, options, costs));
  return 0;
}

// The figures that the method reaches on the past of the same data; nothing where they are too short to say.
std::optional<Proof> proof_of(const Dataset& data, EvaluateOptions options) {
  options.trainings = {Training::sliding};
  options.seeds = std::min(options.seeds, kTrainSeeds);
  try {
    const Evaluation evaluation = evaluate(data, options);
    const Estimate& own = evaluation.rows.front().estimate;
    return Proof{.k = options.figures.k,
                 .precision = own.value.precision_at_k,
                 .low = own.low.precision_at_k,
                 .high = own.high.precision_at_k,
                 .base_rate = evaluation.base_rate,
                 .shuffled = evaluation.shuffled.precision_at_k,
                 .beyond_high = own.high.precision_beyond_k,
                 .skill = evaluation.rows.front().skill};
  } catch (const Error& error) {
    if (error.kind() != "predict.unknown") throw;
    print_err("ms-diag: note: the model is not evaluated: {}\n", error.message());
    return std::nullopt;
  }
}

int train_action(const Args& args) {
  const std::string file = model_file(args);
  check_user_file(file);
  const EvaluateOptions options = options_of(args);
  if (options.methods.size() != 1) {
    throw user_error("predict.model", "train takes one model: name it with --models", method_docs());
  }
  const Dataset data = dataset_of(args);
  Predictor predictor = train(data, options.methods.front(), layout_of(data, options.oracle), options.task,
                              options.window_days, options.step_days);
  predictor.proof = proof_of(data, options);
  predictor.save(file);
  print_out("{}: {} of {}, {} of faults\n", file, predictor.method.name, plural(data.units.size(), "unit"),
            plural(static_cast<std::size_t>(data.last_day - data.first_day), "day"));
  if (const auto& proof = predictor.proof) {
    print_out("of the {} likeliest {:.1f}% failed ({:.1f}-{:.1f}), of all {:.1f}%\n", proof->k, 100 * proof->precision,
              100 * proof->low, 100 * proof->high, 100 * proof->base_rate);
    if (!proof->skill) print_out("no skill shown: score gives no chances by this model\n");
  }
  return 0;
}

// Throws where the model's evaluation does not show that its order is better than none.
void require_skill(const Predictor& predictor) {
  const auto& proof = predictor.proof;
  if (proof && proof->skill) return;
  throw user_error(
      "predict.unknown",
      proof ? fmt::format("cannot know: the model showed no skill: of its {} likeliest {:.1f}% failed ({:.1f}-{:.1f}), "
                          "of all units {:.1f}%, by shuffled labels {:.1f}%",
                          proof->k, 100 * proof->precision, 100 * proof->low, 100 * proof->high, 100 * proof->base_rate,
                          100 * proof->shuffled)
            : "cannot know: the data were too short to evaluate the model",
      "train with a longer history, telemetry, or other --models; --ranking shows the order without chances");
}

// Whether a row holds one known number of telemetry.
bool measured(const Layout& layout, std::span<const float> row) {
  const std::span<const float> series = row.subspan(layout.table_columns() + kSeriesBins);
  constexpr std::size_t kWeek = 7;
  for (std::size_t end = kSeriesBins; end <= series.size(); end += kSeriesBins) {
    for (std::size_t i = end - kWeek; i < end; ++i) {
      if (!std::isnan(series[i])) return true;
    }
  }
  return false;
}

Scores scores_of(const Dataset& data, const Predictor& predictor, std::size_t top) {
  if (data.last_day - data.first_day < kShortestHistory_days) {
    throw user_error("predict.unknown",
                     fmt::format("cannot know: the data are of {:.0f} days, and the model looks back {:.0f} and more",
                                 data.last_day - data.first_day, kShortestHistory_days),
                     "give the whole history, not its last days");
  }
  const std::vector<double> today{data.last_day};
  Rows rows = rows_at(data, predictor.layout, predictor.task, today);
  Scores out{.skill = predictor.proof && predictor.proof->skill, .day = data.last_day};
  std::vector<float> values;
  std::vector<std::size_t> scored;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (!predictor.layout.metrics.empty() && !measured(predictor.layout, rows.row(row))) {
      out.unscored.push_back(data.units[rows.info[row].unit].name);
      continue;
    }
    scored.push_back(row);
    values.insert(values.end(), rows.row(row).begin(), rows.row(row).end());
  }
  if (scored.empty()) {
    throw user_error("predict.unknown", "cannot know: no unit has what the model has to see",
                     "is it of the same days as the faults?");
  }
  const std::vector<std::vector<float>> odds = predictor.odds(values);
  const std::vector<float> order = combined(predictor.method, odds);
  std::vector<std::size_t> ranked(scored.size());
  for (std::size_t i = 0; i < ranked.size(); ++i) ranked[i] = i;
  std::stable_sort(ranked.begin(), ranked.end(), [&](std::size_t a, std::size_t b) { return order[a] > order[b]; });
  ranked.resize(std::min(ranked.size(), top));
  for (std::size_t rank = 0; rank < ranked.size(); ++rank) {
    const std::size_t i = ranked[rank];
    const std::string& name = data.units[rows.info[scored[i]].unit].name;
    if (name.empty()) {
      ++out.unnamed;
      continue;
    }
    out.units.push_back(
        {.name = name,
         .chance = out.skill ? std::min<double>(predictor.chance(odds, i), predictor.proof->most_chance(rank)) : 0,
         .reasons = predictor.reasons(rows.row(scored[i]), kReasons)});
  }
  return out;
}

// A model answers the question that it was trained on, and no other.
void require_same_question(const Args& args, const Predictor& predictor) {
  const Task& task = predictor.task;
  const auto require = [&](std::string_view name, bool same, const std::string& own) {
    if (!args.has(name) || same) return;
    throw user_error("predict.question",
                     fmt::format("--{} {} is not the model's: {}", name, plain_text(args.get(name), 40), own),
                     "leave it out, or train another model with it");
  };
  require("horizon", args.has("horizon") && days_of(args, "horizon", 0) == task.horizon_days,
          fmt::format("it is about failures within {:.4g} days", task.horizon_days));
  require("lead", args.has("lead") && days_of(args, "lead", 0) == task.lead_days,
          fmt::format("its time begins {:.4g} days later", task.lead_days));
  require("target", args.get("target") == task.target,
          fmt::format("it is about kinds '{}'", plain_text(task.target, 200)));
  require("models", args.get("models") == predictor.method.name, "it is " + predictor.method.name);
}

int score_action(const Args& args) {
  if (args.has("json") && args.has("csv")) throw user_error("predict.form", "--json and --csv are two forms: give one");
  const Predictor predictor = load_predictor(model_file(args));
  require_same_question(args, predictor);
  if (!args.has("ranking")) require_skill(predictor);
  const auto top = static_cast<std::size_t>(args.get_int("top", 1, kMostUnits));
  const Scores scores = scores_of(dataset_of(args), predictor, top);
  write_out(args.has("json")  ? scores_json(scores, predictor)
            : args.has("csv") ? scores_csv(scores)
                              : scores_text(scores, predictor));
  return 0;
}

}  // namespace

int run_command(const Args& args) {
  const std::string action = args.get("ACTION");
  if (action == "evaluate") return evaluate_action(args);
  if (action == "train") return train_action(args);
  if (action == "score") return score_action(args);
  throw user_error("predict.action", fmt::format("there is no action '{}'", plain_text(action, 40)),
                   "train, score or evaluate");
}

}  // namespace ms::predict
