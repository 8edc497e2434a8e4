// The registry of models that --models can name: a row of model.cpp each, defined in a file of its own. A model maps a
// row of rows.h to log-odds of a failure. Training is deterministic in (rows, seed).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "predict/rows.h"

namespace ms::predict {

// Rows to learn from, with unknown labels left out. Of healthy rows only a part may have been kept.
struct TrainingSet {
  const Rows& rows;
  const Layout& layout;
  std::vector<std::size_t> chosen = {};  // of rows
  double healthy_kept = 1;               // the part of healthy rows that is among them
  std::uint64_t seed = 0;
  Task task = {};
  const std::vector<std::size_t>* shuffled = nullptr;  // by row, the row whose outcome counts in place of its own
  std::vector<float> weights = {};                     // by place in `chosen`; of train_model()

  bool fails(std::size_t row) const { return outcome(row).label == Label::fails; }
  const RowInfo& outcome(std::size_t row) const { return rows.info[shuffled ? (*shuffled)[row] : row]; }
};

class Model {
 public:
  virtual ~Model() = default;
  // `values` are rows of the layout's width behind one another; out one number a row. Of a model of train_model() or
  // load_model(): Error("predict.unknown", user) where one is not finite.
  virtual void score(std::span<const float> values, std::size_t width, std::span<float> out) const = 0;
  virtual Json save() const = 0;
};

struct ModelKind {
  std::string_view name;
  std::string_view doc;  // a clause
  // Says what this machine lacks to train such a model; empty: nothing.
  std::string (*lacks)();
  std::unique_ptr<Model> (*train)(const TrainingSet& set);
  // JsonError where it is not what save() wrote for this layout. The document is trusted in nothing.
  std::unique_ptr<Model> (*load)(const Json& json, const Layout& layout);
};

std::span<const ModelKind* const> model_kinds();
// nullptr: there is no such model.
const ModelKind* find_model(std::string_view name);

// Healthy rows beyond this many for each failing one teach little.
inline constexpr std::size_t kHealthyPerFailing = 20;
// A failing row shows the more of its failure the nearer that is: its weight falls to 1/e in this part of the horizon.
inline constexpr double kWeightFalls = 0.25;
// Trains on the set's chosen rows, of which it drops healthy ones beyond kHealthyPerFailing, and weighs the failing
// ones, whose mean weight is 1; scores are those of all.
std::unique_ptr<Model> train_model(const ModelKind& kind, TrainingSet set);

// Reads what train_model()'s result saved. JsonError as ModelKind::load.
std::unique_ptr<Model> load_model(const ModelKind& kind, const Json& json, const Layout& layout);

// Columns to mean 0 and spread 1, clipped; what is not known becomes the mean.
class Scale {
 public:
  Scale() = default;
  Scale(const TrainingSet& set, std::size_t first, std::size_t count);
  Scale(const Json& json, std::size_t first, std::size_t count);
  std::size_t size() const { return mean_.size(); }
  void apply(std::span<const float> row, float* out) const;
  Json save() const;

 private:
  std::size_t first_ = 0;
  std::vector<float> mean_, per_spread_;
};

// JsonError: not so many numbers, or one that is not finite.
std::vector<float> finite_numbers(const Json& json, std::string_view key, std::size_t count);

}  // namespace ms::predict
