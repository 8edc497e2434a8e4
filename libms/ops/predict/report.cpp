#include "predict/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "base/utc.h"

namespace ms::predict {
namespace {

constexpr int kIndent = 2;

std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }
std::string interval(const Estimate& estimate, double Figures::*member) {
  return fmt::format("{:.1f}-{:.1f}", 100 * (estimate.low.*member), 100 * (estimate.high.*member));
}

double out_gpu_hours(const Figures& figures, const Costs& costs) {
  return figures.flagged * costs.out_hours * costs.gpus_per_node;
}

// Clocks that do not count since 1970 are shown as they are.
std::string day_text(double day) {
  constexpr double kNoYear_days = 3650;
  return day < kNoYear_days ? fmt::format("day {:.0f}", day) : utc_text(day * kDay_s).substr(0, 10);
}

std::string training_of(const Evaluated& row) { return row.control ? "" : std::string(to_string(row.training)); }

Json figures_json(const Estimate& estimate) {
  const auto one = [&](double Figures::*member) {
    return Json{{"value", estimate.value.*member}, {"low", estimate.low.*member}, {"high", estimate.high.*member}};
  };
  return Json{{"precision_at_k", one(&Figures::precision_at_k)},
              {"recall_at_k", one(&Figures::recall_at_k)},
              {"pr_auc", one(&Figures::pr_auc)},
              {"precision_at_recall", one(&Figures::precision_at_recall)},
              {"precision_beyond_k", one(&Figures::precision_beyond_k)},
              {"lead_days", one(&Figures::lead_days)}};
}

std::string words_of(const std::vector<Reason>& reasons) {
  std::vector<std::string> texts;
  for (const Reason& reason : reasons) texts.push_back(reason.text);
  return fmt::format("{}", fmt::join(texts, "; "));
}

// A cell that our own reader, and any other, takes for one.
std::string cell(std::string text) {
  std::erase(text, ',');
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '"' || c == '\n' || c == '\r'; }, ' ');
  return text;
}

}  // namespace

std::string evaluation_text(const Evaluation& e, const EvaluateOptions& options, const Costs& costs) {
  std::string text = fmt::format(
      "{} fails within {:g} days{}, asked on {} from {} to {}: {} of {} rows do, of {} units of {}\n"
      "scored by models of {} units' past, {}, {}; intervals: 95% of {} resamples of units and "
      "seeds\n\n",
      options.task.target == "*" ? "A unit" : options.task.target, options.task.horizon_days,
      options.task.lead_days > 0 ? fmt::format(" ({:g} days from then)", options.task.lead_days) : "",
      plural(e.decisions, "day"), day_text(e.first_decision), day_text(e.last_decision), e.failing, e.outcomes,
      e.failing_units, e.units, options.folds == 1 ? "all" : "other",
      plural(static_cast<std::size_t>(options.folds), "fold"), plural(static_cast<std::size_t>(options.seeds), "seed"),
      options.figures.resamples);
  TextTable table(columns(
      fmt::format("MODEL|TRAINING|P@{0}>|95%>|R@{0}>|PR-AUC>|95%>|P AT R={1:.0f}%>|95%>|LEAD>|OUT>|PAYS ABOVE>|{2}>",
                  options.figures.k, 100 * options.figures.recall, costs.failure_gpu_hours > 0 ? "NET" : "")));
  for (const Evaluated& row : e.rows) {
    const Figures& f = row.estimate.value;
    const double out = out_gpu_hours(f, costs);
    table.row({row.name, training_of(row), percent(f.precision_at_k), interval(row.estimate, &Figures::precision_at_k),
               percent(f.recall_at_k), percent(f.pr_auc), interval(row.estimate, &Figures::pr_auc),
               percent(f.precision_at_recall), interval(row.estimate, &Figures::precision_at_recall),
               f.caught > 0 ? fmt::format("{:.1f}d", f.lead_days) : "", format_count(out),
               f.caught > 0 ? format_count(out / f.caught) : "never",
               costs.failure_gpu_hours > 0 ? format_count(f.caught * costs.failure_gpu_hours - out) : ""});
  }
  text += table.str();
  std::vector<std::string> without;
  for (const Evaluated& row : e.rows) {
    if (!row.control && !row.skill) without.push_back(fmt::format("{} ({})", row.name, training_of(row)));
  }
  if (!without.empty()) {
    text +=
        fmt::format("\nno skill shown: {}: the interval of P@{} reaches down to the base rate or the shuffled labels\n",
                    fmt::join(without, ", "), options.figures.k);
  }
  text += fmt::format(
      "\nbase rate: {} of the rows fail; of {} with a fault in the 30 days before, {}\n"
      "{} of {} failures are of units with an earlier fault in the data: the others can only be foreseen by telemetry "
      "or facts\n"
      "OUT: GPU-hours out of service where the {} are taken out for {:g} h each, {:g} GPUs a unit; it pays where a "
      "failure costs more GPU-hours than PAYS ABOVE\n",
      percent(e.base_rate), e.recent,
      e.recent == 0 ? "none" : percent(static_cast<double>(e.recent_failing) / static_cast<double>(e.recent)),
      e.with_history, e.failing, options.figures.k, costs.out_hours, costs.gpus_per_node);
  return text;
}

std::string evaluation_json(const Evaluation& e, const EvaluateOptions& options, const Costs& costs) {
  Json rows = Json::array();
  for (const Evaluated& row : e.rows) {
    const double out = out_gpu_hours(row.estimate.value, costs);
    Json one{{"model", row.name}, {"control", row.control}, {"training", training_of(row)}};
    if (!row.control) one["skill"] = row.skill;
    one.update(figures_json(row.estimate));
    one["out_gpu_hours"] = out;
    one["pays_above_gpu_hours"] = row.estimate.value.caught > 0 ? Json(out / row.estimate.value.caught) : Json();
    if (costs.failure_gpu_hours > 0) {
      one["net_gpu_hours"] = row.estimate.value.caught * costs.failure_gpu_hours - out;
    }
    rows.push_back(std::move(one));
  }
  const Json json{{"schema", 1},
                  {"horizon_days", options.task.horizon_days},
                  {"lead_days", options.task.lead_days},
                  {"target", options.task.target},
                  {"k", options.figures.k},
                  {"recall", options.figures.recall},
                  {"decisions", e.decisions},
                  {"rows", e.outcomes},
                  {"failing_rows", e.failing},
                  {"units", e.units},
                  {"failing_units", e.failing_units},
                  {"base_rate", e.base_rate},
                  {"recent_rows", e.recent},
                  {"recent_failing_rows", e.recent_failing},
                  {"failing_with_history", e.with_history},
                  {"trained_rows", e.trained_rows},
                  {"train_s", e.train_s},
                  {"scored_rows", e.scored_rows},
                  {"columns", e.columns},
                  {"score_s", e.score_s},
                  {"models", std::move(rows)}};
  return json.dump(kIndent) + "\n";
}

std::string scores_text(const Scores& scores, const Predictor& predictor) {
  TextTable table(columns(scores.skill ? "UNIT|CHANCE>|WHAT RAISES IT MOST" : "UNIT|>|WHAT RAISES IT MOST"));
  for (const ScoredUnit& unit : scores.units) {
    table.row({unit.name, scores.skill ? percent(unit.chance) : "",
               unit.reasons.empty() ? "nothing" : words_of(unit.reasons)});
  }
  std::string text = table.str();
  text += fmt::format(
      "\n{} on {}: {} {} fails within {:g} days{}, by a model that learned until {}\n", predictor.method.name,
      day_text(scores.day), scores.skill ? "the chance that" : "an order of which no skill was shown, by the odds that",
      predictor.task.target == "*" ? "a unit" : predictor.task.target, predictor.task.horizon_days,
      predictor.task.lead_days > 0 ? fmt::format(" ({:g} days from then)", predictor.task.lead_days) : "",
      day_text(predictor.trained_until));
  if (const auto& proof = predictor.proof) {
    text += fmt::format(
        "evaluated on that past: of the {} likeliest {} failed ({}-{}), of all units {}; by shuffled labels {}\n",
        proof->k, percent(proof->precision), percent(proof->low), percent(proof->high), percent(proof->base_rate),
        percent(proof->shuffled));
    if (scores.skill) {
      text += fmt::format("no chance is above what that allows: {} of the first {}, {} of the others\n",
                          percent(proof->high), proof->k, percent(proof->beyond_high));
    }
  } else {
    text += "how good such lists are is not known: the data were too short to evaluate the model\n";
  }
  if (scores.unnamed > 0) {
    text += fmt::format("{} of the likeliest have no name: give a table of all units as --nodes\n", scores.unnamed);
  }
  if (!scores.unscored.empty()) {
    text += fmt::format("cannot know: {} without a sample in the last week: {}\n",
                        plural(scores.unscored.size(), "unit"), fmt::join(scores.unscored, ", "));
  }
  return text;
}

std::string scores_csv(const Scores& scores) {
  std::string text = "unit,chance,reasons\n";
  for (const ScoredUnit& unit : scores.units) {
    const std::string chance = scores.skill ? fmt::format("{:.6g}", unit.chance) : "";
    text += fmt::format("{},{},{}\n", cell(unit.name), chance, cell(words_of(unit.reasons)));
  }
  for (const std::string& name : scores.unscored) text += fmt::format("{},,no sample in the last week\n", cell(name));
  return text;
}

std::string scores_json(const Scores& scores, const Predictor& predictor) {
  Json units = Json::array();
  for (const ScoredUnit& unit : scores.units) {
    Json reasons = Json::array();
    for (const Reason& reason : unit.reasons)
      reasons.push_back(Json{{"reason", reason.text}, {"log_odds", reason.odds}});
    units.push_back(Json{{"unit", unit.name},
                         {"chance", scores.skill ? Json(unit.chance) : Json(nullptr)},
                         {"reasons", std::move(reasons)}});
  }
  Json proof;
  if (const auto& known = predictor.proof) {
    proof =
        Json{{"k", known->k},       {"precision_at_k", known->precision}, {"low", known->low},
             {"high", known->high}, {"base_rate", known->base_rate},      {"shuffled_precision_at_k", known->shuffled}};
  }
  const Json json{{"schema", 1},
                  {"model", predictor.method.name},
                  {"day", scores.day},
                  {"horizon_days", predictor.task.horizon_days},
                  {"lead_days", predictor.task.lead_days},
                  {"trained_until", predictor.trained_until},
                  {"skill", scores.skill},
                  {"evaluated", std::move(proof)},
                  {"units", std::move(units)},
                  {"not_known", scores.unscored}};
  return json.dump(kIndent) + "\n";
}

}  // namespace ms::predict
