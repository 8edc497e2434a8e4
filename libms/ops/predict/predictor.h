// A trained method, as ms-diag predict train writes it and score reads it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "predict/method.h"

namespace ms::predict {

// An evaluation of this method on the data that it was trained on.
struct Proof {
  std::size_t k = 0;
  double precision = 0, low = 0, high = 0, base_rate = 0;
  double shuffled = 0;     // the same precision, of a model of shuffled labels
  double beyond_high = 0;  // the upper bound of the part that fails of all but the K likeliest
  bool skill = false;      // as Evaluated::skill

  // The most that the evaluation allows for the unit of this rank, from 0.
  double most_chance(std::size_t rank) const { return rank < k ? high : beyond_high; }
};

struct Reason {
  std::string text = {};  // "faults in the last 30 days: 3"
  float odds = 0;         // by how much the log-odds fall where this were as on most units
};

struct Predictor {
  Method method = {};
  Layout layout = {};
  Task task = {};
  std::vector<std::unique_ptr<Model>> members = {};
  std::vector<float> typical = {};  // the median of each column
  std::optional<Proof> proof = {};
  double trained_until = 0;  // the last day that labels looked at

  // Each member's log-odds of these rows.
  std::vector<std::vector<float>> odds(std::span<const float> values) const;
  // The chance of a failure by the members that decide: all of them, of a cascade the last.
  float chance(std::span<const std::vector<float>> member_odds, std::size_t row) const;
  // The columns that raise a row's odds most, at most so many, the largest first.
  std::vector<Reason> reasons(std::span<const float> row, std::size_t most) const;

  void save(const std::string& path) const;
};

Predictor train(const Dataset& data, const Method& method, const Layout& layout, const Task& task, double window_days,
                double step_days);

// Throws Error("predict.file", user) for a file that is no model, of another version, or damaged in any way.
Predictor load_predictor(const std::string& path);

}  // namespace ms::predict
