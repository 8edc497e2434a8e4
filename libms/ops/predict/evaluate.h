// Evaluation in the order of time. On each day of decision models learn from what was known by then, score every unit
// once, and the outcome is looked up afterwards. A unit's own past never trains the model that scores it: units are in
// folds, and each fold is scored by models of the others.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "predict/figures.h"
#include "predict/method.h"

namespace ms::predict {

enum class Training { fixed, expanding, sliding };  // the first window; all before; the last window

struct EvaluateOptions {
  Task task = {};
  std::vector<Method> methods = {};
  std::vector<Training> trainings = {Training::sliding};
  double window_days = 90;  // of the moments that a sliding model learns from
  double step_days = 7;     // between these moments
  int folds = 2, seeds = 5;
  FigureOptions figures = {};
  std::string oracle = {};  // a metric that only the ceiling may see; empty: none
};

struct Evaluated {
  std::string name = {};
  Training training = Training::sliding;
  bool control = false;
  Estimate estimate = {};
  bool skill = false;  // the interval of precision at K is above the base rate and above that of shuffled labels
};

struct Evaluation {
  std::vector<Evaluated> rows = {};
  std::size_t decisions = 0, outcomes = 0, failing = 0, units = 0, failing_units = 0;
  std::size_t with_history = 0;                // failing outcomes of units that had a fault before
  std::size_t recent = 0, recent_failing = 0;  // outcomes with a fault in the 30 days before
  Figures shuffled = {};                       // what a model of shuffled labels reached
  double base_rate = 0, first_decision = 0, last_decision = 0;
  std::int64_t trained_rows = 0, scored_rows = 0;  // by all models
  std::size_t columns = 0;                         // of a table's row
  double train_s = 0, score_s = 0;
};

// Distinct failing units that a model needs to learn from.
inline constexpr std::size_t kFewestFailing = 10;

// Throws Error("predict.unknown", user) where the data cannot support it: too short, or too few failures.
Evaluation evaluate(const Dataset& data, const EvaluateOptions& options);

// The rows whose label is known by `day` and whose moment is not before `from_day`, of units for which `in` holds.
// Throws Error("predict.unknown", user) if fewer than kFewestFailing units fail in them.
TrainingSet training_set(const Rows& rows, const Layout& layout, const Task& task, double from_day, double day,
                         const std::function<bool(std::uint32_t unit)>& in);

// Moments from `first_day` on.
std::vector<double> every(double first_day, double last_day, double step_days);

std::string_view to_string(Training training);

}  // namespace ms::predict
