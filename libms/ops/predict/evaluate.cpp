#include "predict/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/text.h"

namespace ms::predict {
namespace {

constexpr std::size_t kRecentColumn = 2;  // "faults in the last 30 days" of Layout::columns()
constexpr std::size_t kAllColumn = 4;     // "faults so far"
constexpr std::string_view kShuffled = "shuffled labels";

// One model that a decision needs, whatever methods use it.
struct Learner {
  const ModelKind* kind = nullptr;
  Training training = Training::sliding;
  bool shuffled = false;
  auto operator<=>(const Learner&) const = default;
};

class Evaluator {
 public:
  Evaluator(const Dataset& data, const EvaluateOptions& options)
      : data_(data), options_(options), layout_(layout_of(data, options.oracle)) {
    const Task& task = options.task;
    const double ahead = task.lead_days + task.horizon_days;
    const double first = data.first_day + options.window_days + ahead;
    decisions_ = every(first, data.last_day - ahead, task.horizon_days);
    if (decisions_.empty()) {
      throw user_error(
          "predict.unknown",
          fmt::format("cannot know: the data are of {:.0f} days; a window of {:.0f} and {:.0f} ahead, twice, "
                      "need {:.0f}",
                      data.last_day - data.first_day, options.window_days, ahead, options.window_days + 2 * ahead),
          "give a longer history, or a shorter --window or --horizon");
    }
    past_ = rows_at(data, layout_, task, every(data.first_day, data.last_day, options.step_days));
    asked_ = rows_at(data, layout_, task, decisions_);
  }

  Evaluation run();

 private:
  std::uint32_t fold(std::uint32_t unit) const {
    return static_cast<std::uint32_t>(
        uniform_below(0, rng_key("predict fold"), unit, static_cast<std::uint64_t>(options_.folds)));
  }
  void count(Evaluation& out);
  // The scores of all asked rows, by one learner.
  std::vector<float> scores_of(const Learner& learner, std::uint64_t seed, Evaluation& out);
  std::unique_ptr<Model> trained(const Learner& learner, std::size_t decision, std::uint32_t fold, std::uint64_t seed,
                                 Evaluation& out);
  std::vector<Outcome> outcomes(const std::vector<float>& scores) const;
  // Combines within each day of decision.
  std::vector<float> combine(const Method& method, const std::vector<const std::vector<float>*>& members) const;
  void controls(Evaluation& out);
  void add(Evaluation& out, std::string name, Training training, bool control,
           const std::vector<std::vector<Outcome>>& runs) const {
    out.rows.push_back({std::move(name), training, control, estimate(runs, data_.units.size(), options_.figures)});
  }

  const Dataset& data_;
  const EvaluateOptions& options_;
  Layout layout_;
  std::vector<double> decisions_;
  Rows past_, asked_;
  std::vector<std::size_t> known_;              // of asked_
  std::vector<std::uint32_t> decision_;         // by known_
  std::vector<std::vector<std::size_t>> days_;  // positions in known_ of each decision
  SystemClock clock_;
};

void Evaluator::count(Evaluation& out) {
  std::set<std::uint32_t> units, failing;
  days_.resize(decisions_.size());
  for (std::size_t row = 0; row < asked_.size(); ++row) {
    const RowInfo& info = asked_.info[row];
    if (info.label == Label::unknown) continue;
    const auto day =
        static_cast<std::uint32_t>(std::find(decisions_.begin(), decisions_.end(), info.day) - decisions_.begin());
    days_[day].push_back(known_.size());
    known_.push_back(row);
    decision_.push_back(day);
    units.insert(info.unit);
    const bool fails = info.label == Label::fails, recent = asked_.row(row)[kRecentColumn] > 0;
    out.recent += recent ? 1 : 0;
    if (!fails) continue;
    ++out.failing;
    failing.insert(info.unit);
    out.recent_failing += recent ? 1 : 0;
    out.with_history += asked_.row(row)[kAllColumn] > 0 ? 1 : 0;
  }
  out.decisions = decisions_.size();
  out.outcomes = known_.size();
  out.units = units.size();
  out.failing_units = failing.size();
  out.first_decision = decisions_.front();
  out.last_decision = decisions_.back();
  if (failing.size() < kFewestFailing) {
    throw user_error("predict.unknown",
                     fmt::format("cannot know: on {} only {} of {} failed afterwards; {} are needed to judge",
                                 plural(decisions_.size(), "day") + " of decision", failing.size(),
                                 plural(units.size(), "unit"), kFewestFailing),
                     "give a longer history, or more nodes");
  }
  out.base_rate = static_cast<double>(out.failing) / static_cast<double>(out.outcomes);
}

std::unique_ptr<Model> Evaluator::trained(const Learner& learner, std::size_t decision, std::uint32_t fold_now,
                                          std::uint64_t seed, Evaluation& out) {
  const Task& task = options_.task;
  const double today = decisions_[learner.training == Training::fixed ? 0 : decision];
  const double from = learner.training == Training::expanding
                          ? data_.first_day
                          : today - task.lead_days - task.horizon_days - options_.window_days;
  TrainingSet set = training_set(past_, layout_, task, from, today,
                                 [&](std::uint32_t unit) { return options_.folds == 1 || fold(unit) != fold_now; });
  set.seed = seed;
  std::vector<std::size_t> shuffled;
  if (learner.shuffled) {  // among the rows of the set
    shuffled.resize(past_.size());
    std::vector<std::size_t> from_row = set.chosen;
    for (std::size_t i = from_row.size(); i-- > 1;) {
      std::swap(from_row[i], from_row[uniform_below(seed, rng_key("predict shuffle"), i, i + 1)]);
    }
    for (std::size_t i = 0; i < from_row.size(); ++i) shuffled[set.chosen[i]] = from_row[i];
    set.shuffled = &shuffled;
  }
  const double began = clock_.now_s();
  std::unique_ptr<Model> model = train_model(*learner.kind, set);
  out.train_s += clock_.now_s() - began;
  out.trained_rows += static_cast<std::int64_t>(set.chosen.size());
  return model;
}

std::vector<float> Evaluator::scores_of(const Learner& learner, std::uint64_t seed, Evaluation& out) {
  std::vector<float> scores(known_.size());
  std::vector<std::unique_ptr<Model>> fixed(static_cast<std::size_t>(options_.folds));
  for (std::size_t decision = 0; decision < decisions_.size(); ++decision) {
    for (std::uint32_t now = 0; std::cmp_less(now, options_.folds); ++now) {
      std::unique_ptr<Model>& model = fixed[now];
      if (!model || learner.training != Training::fixed) model = trained(learner, decision, now, seed, out);
      std::vector<std::size_t> places;
      std::vector<float> values;
      for (const std::size_t place : days_[decision]) {
        const std::size_t row = known_[place];
        if (fold(asked_.info[row].unit) != now) continue;
        places.push_back(place);
        const std::span<const float> one = asked_.row(row);
        values.insert(values.end(), one.begin(), one.end());
      }
      std::vector<float> odds(places.size());
      const double began = clock_.now_s();
      model->score(values, asked_.width, odds);
      out.score_s += clock_.now_s() - began;
      out.scored_rows += static_cast<std::int64_t>(odds.size());
      for (std::size_t i = 0; i < places.size(); ++i) scores[places[i]] = odds[i];
    }
  }
  return scores;
}

std::vector<Outcome> Evaluator::outcomes(const std::vector<float>& scores) const {
  std::vector<Outcome> all;
  for (std::size_t i = 0; i < known_.size(); ++i) {
    const RowInfo& info = asked_.info[known_[i]];
    all.push_back({.unit = info.unit,
                   .decision = decision_[i],
                   .score = scores[i],
                   .fails = info.label == Label::fails,
                   .days_to_failure = info.days_to_failure});
  }
  return all;
}

std::vector<float> Evaluator::combine(const Method& method,
                                      const std::vector<const std::vector<float>*>& members) const {
  std::vector<float> out(known_.size());
  for (const std::vector<std::size_t>& day : days_) {
    std::vector<std::vector<float>> of_day(members.size());
    for (std::size_t m = 0; m < members.size(); ++m) {
      for (const std::size_t place : day) of_day[m].push_back((*members[m])[place]);
    }
    if (day.empty()) continue;
    const std::vector<float> scores = combined(method, of_day);
    for (std::size_t i = 0; i < day.size(); ++i) out[day[i]] = scores[i];
  }
  return out;
}

// Adds rankings that need no model, and the ceiling that options_.oracle sets.
void Evaluator::controls(Evaluation& out) {
  const auto by = [&](std::string name, const auto& score) {
    std::vector<float> scores;
    for (const std::size_t row : known_) scores.push_back(score(row));
    add(out, std::move(name), Training::sliding, true, {outcomes(scores)});
  };
  by("failed recently", [&](std::size_t row) { return asked_.row(row)[kRecentColumn]; });
  if (!options_.oracle.empty()) {
    const auto metric = static_cast<std::size_t>(
        std::find(data_.metrics.begin(), data_.metrics.end(), options_.oracle) - data_.metrics.begin());
    by("ceiling: " + options_.oracle, [&](std::size_t row) {
      const RowInfo& info = asked_.info[row];
      const float value = last_level(data_, data_.units[info.unit], metric, info.day);
      return std::isnan(value) ? 0 : value;
    });
  }
  by("ceiling: the future", [&](std::size_t row) { return asked_.info[row].label == Label::fails ? 1.0F : 0.0F; });
}

Evaluation Evaluator::run() {
  Evaluation out;
  out.columns = layout_.table_columns();
  count(out);
  std::set<Learner> learners;
  for (const Method& method : options_.methods) {
    for (const Training training : options_.trainings) {
      for (const ModelKind* kind : method.members) learners.insert({kind, training, false});
    }
  }
  const Learner shuffled{options_.methods.front().members.front(), options_.trainings.front(), true};
  learners.insert(shuffled);
  Progress progress("evaluate", static_cast<std::int64_t>(learners.size()) * options_.seeds, "models", clock_);
  std::vector<std::map<Learner, std::vector<float>>> runs(static_cast<std::size_t>(options_.seeds));
  std::int64_t done = 0;
  for (std::size_t seed = 0; seed < runs.size(); ++seed) {
    for (const Learner& learner : learners) {
      runs[seed][learner] = scores_of(learner, seed, out);
      progress.update(++done, learner.kind->name);
    }
  }
  for (const Training training : options_.trainings) {
    for (const Method& method : options_.methods) {
      std::vector<std::vector<Outcome>> all;
      for (const auto& run : runs) {
        std::vector<const std::vector<float>*> members;
        for (const ModelKind* kind : method.members) members.push_back(&run.at({kind, training, false}));
        all.push_back(outcomes(combine(method, members)));
      }
      add(out, method.name, training, false, all);
    }
  }
  std::vector<std::vector<Outcome>> all;
  for (const auto& run : runs) all.push_back(outcomes(run.at(shuffled)));
  add(out, fmt::format("{}, {}", kShuffled, shuffled.kind->name), shuffled.training, true, all);
  out.shuffled = out.rows.back().estimate.value;
  const double chance = std::max(out.base_rate, out.shuffled.precision_at_k);
  for (Evaluated& row : out.rows) row.skill = !row.control && row.estimate.low.precision_at_k > chance;
  controls(out);
  return out;
}

}  // namespace

TrainingSet training_set(const Rows& rows, const Layout& layout, const Task& task, double from_day, double day,
                         const std::function<bool(std::uint32_t unit)>& in) {
  TrainingSet set{.rows = rows, .layout = layout, .task = task};
  std::set<std::uint32_t> failing;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const RowInfo& info = rows.info[row];
    if (info.label == Label::unknown || info.day < from_day) continue;
    if (info.day + task.lead_days + task.horizon_days > day || !in(info.unit)) continue;
    set.chosen.push_back(row);
    if (info.label == Label::fails) failing.insert(info.unit);
  }
  if (failing.size() < kFewestFailing) {
    throw user_error("predict.unknown",
                     fmt::format("cannot know: of the moments between day {:.0f} and {:.0f} only {} failed afterwards; "
                                 "{} are needed to learn from",
                                 from_day, day, plural(failing.size(), "unit"), kFewestFailing),
                     "give a longer history or more nodes, or a longer --window or --horizon");
  }
  return set;
}

std::vector<double> every(double first_day, double last_day, double step_days) {
  std::vector<double> days;
  for (int i = 0; first_day + i * step_days <= last_day; ++i) days.push_back(first_day + i * step_days);
  return days;
}

std::string_view to_string(Training training) {
  constexpr std::array<std::string_view, 3> kNames{"fixed", "expanding", "sliding"};
  return kNames[static_cast<std::size_t>(training)];
}

Evaluation evaluate(const Dataset& data, const EvaluateOptions& options) { return Evaluator(data, options).run(); }

}  // namespace ms::predict
