// Gradient-boosted trees. XGBoost trains them; they are scored here, from arrays that load() has checked: an operator's
// machine needs no XGBoost to score, and a model file of somebody else reaches no parser of it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/handle.h"
#include "predict/model.h"
#include "predict/xgboost.h"

namespace ms::predict {
namespace {

constexpr int kRounds = 120;
constexpr std::array<std::pair<const char*, const char*>, 10> kParams{{{"objective", "binary:logistic"},
                                                                       {"base_score", "0.5"},
                                                                       {"tree_method", "hist"},
                                                                       {"eta", "0.08"},
                                                                       {"max_depth", "4"},
                                                                       {"min_child_weight", "4"},
                                                                       {"subsample", "0.8"},
                                                                       {"colsample_bytree", "0.8"},
                                                                       {"lambda", "2"},
                                                                       {"verbosity", "0"}}};
constexpr std::size_t kValuesPerThread = std::size_t{1} << 20;
constexpr std::size_t kRowsAtOnce = 64;  // whose values, and a tree, the first cache holds
constexpr std::size_t kMaxTrees = 10000;
constexpr std::size_t kMaxNodes = 100000;  // of a tree

void check(int status) {
  if (status == 0) return;
  throw Error("predict.xgboost", Blame::node, fmt::format("XGBoost failed: {}", xgboost::api(nullptr)->last_error()));
}

struct MatrixTraits {
  using Type = xgboost::Matrix;
  static constexpr Type null() { return nullptr; }
  static void destroy(Type matrix) noexcept { xgboost::api(nullptr)->matrix_free(matrix); }
};
struct BoosterTraits {
  using Type = xgboost::Booster;
  static constexpr Type null() { return nullptr; }
  static void destroy(Type booster) noexcept { xgboost::api(nullptr)->booster_free(booster); }
};

struct TreeNode {
  std::array<std::int32_t, 2> child{};  // left and right; of a leaf, whose value is `at`, itself
  std::int32_t column = 0;
  float at = 0;  // left where the column's value is below it
  bool unknown_left = false;
};
using Tree = std::vector<TreeNode>;

class Trees final : public Model {
 public:
  explicit Trees(std::vector<Tree> trees) : trees_(std::move(trees)) {
    for (const Tree& tree : trees_) {
      std::vector<int> levels(tree.size());  // above a node
      for (std::size_t i = 0; i < tree.size(); ++i) {
        columns_ = std::max(columns_, static_cast<std::size_t>(tree[i].column) + 1);
        for (const std::int32_t child : tree[i].child) {
          int& level = levels[static_cast<std::size_t>(child)];
          if (static_cast<std::size_t>(child) != i) level = std::max(level, levels[i] + 1);
        }
      }
      depths_.push_back(std::ranges::max(levels));
    }
  }

  void score(std::span<const float> values, std::size_t width, std::span<float> out) const override {
    std::fill(out.begin(), out.end(), 0.0F);
    // Copied without what no tree asks for: rows that lie a power of two apart would all fall into a few cache sets.
    std::vector<float> table(kRowsAtOnce * columns_);
    for (std::size_t begin = 0; begin < out.size(); begin += kRowsAtOnce) {
      const std::size_t rows = std::min(kRowsAtOnce, out.size() - begin);
      for (std::size_t i = 0; i < rows; ++i)
        std::copy_n(values.data() + (begin + i) * width, columns_, table.data() + i * columns_);
      for (std::size_t t = 0; t < trees_.size(); ++t)
        add_leaves(trees_[t], depths_[t], table.data(), out.subspan(begin, rows));
    }
  }

  Json save() const override {
    Json trees = Json::array();
    for (const Tree& tree : trees_) {
      std::vector<std::int32_t> left, right, column;
      std::vector<float> at;
      std::vector<int> unknown_left;
      for (const TreeNode& node : tree) {
        const bool is_leaf = &tree[static_cast<std::size_t>(node.child[0])] == &node;
        left.push_back(is_leaf ? -1 : node.child[0]);
        right.push_back(is_leaf ? -1 : node.child[1]);
        column.push_back(node.column);
        at.push_back(node.at);
        unknown_left.push_back(node.unknown_left ? 1 : 0);
      }
      trees.push_back(Json{{"left_children", left},
                           {"right_children", right},
                           {"split_indices", column},
                           {"split_conditions", at},
                           {"default_left", unknown_left}});
    }
    return Json{{"trees", std::move(trees)}};
  }

 private:
  // All rows go down together, a level at a time: their steps do not wait for each other, as those of one row do, and
  // none is a branch that a processor guesses wrong. Who is at a leaf stays there.
  void add_leaves(const Tree& tree, int depth, const float* table, std::span<float> out) const {
    std::array<std::int32_t, kRowsAtOnce> at{};
    for (int level = 0; level < depth; ++level) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        const TreeNode& node = tree[static_cast<std::size_t>(at[i])];
        const float value = table[i * columns_ + static_cast<std::size_t>(node.column)];
        const bool is_right = !((value < node.at) | (std::isnan(value) & node.unknown_left));
        at[i] = node.child[is_right];
      }
    }
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += tree[static_cast<std::size_t>(at[i])].at;
  }

  std::vector<Tree> trees_;
  std::vector<int> depths_;
  std::size_t columns_ = 0;  // that are asked for, of the table at the beginning of a row
};

// XGBoost's model and ours have the same members. Children come behind their parent, so that every walk ends.
Tree read_tree(const Json& json, std::size_t columns) {
  const auto left = json.get<std::vector<std::int32_t>>("left_children");
  const auto right = json.get<std::vector<std::int32_t>>("right_children");
  const auto column = json.get<std::vector<std::int32_t>>("split_indices");
  const std::size_t nodes = left.size();
  const std::vector<float> at = finite_numbers(json, "split_conditions", nodes);
  const Json& unknown_left = json.at("default_left");
  if (nodes == 0 || nodes > kMaxNodes) throw JsonError("a tree has no nodes, or too many");
  if (right.size() != nodes || column.size() != nodes || unknown_left.size() != nodes) {
    throw JsonError("the arrays of a tree differ in length");
  }
  Tree tree(nodes);
  for (std::size_t i = 0; i < nodes; ++i) {
    const Json& way = unknown_left[i];
    if (left[i] < 0) {
      const auto itself = static_cast<std::int32_t>(i);
      tree[i] = {.child = {itself, itself}, .at = at[i]};
      continue;
    }
    tree[i] = {{left[i], right[i]}, column[i], at[i], way.is_boolean() ? way.get<bool>() : way.get<int>() != 0};
    const auto behind = [&](std::int32_t child) {
      return child > static_cast<std::int32_t>(i) && static_cast<std::size_t>(child) < nodes;
    };
    if (!behind(left[i]) || !behind(right[i])) throw JsonError("a tree's nodes are not in order");
    if (column[i] < 0 || static_cast<std::size_t>(column[i]) >= columns) throw JsonError("a tree asks for no column");
  }
  return tree;
}

std::unique_ptr<Model> load_trees(const Json& json, const Layout& layout) {
  std::vector<Tree> trees;
  const Json& list = json.at("trees");
  if (list.size() > kMaxTrees) throw JsonError("there are too many trees");
  for (const Json& tree : list) trees.push_back(read_tree(tree, layout.table_columns()));
  return std::make_unique<Trees>(std::move(trees));
}

std::unique_ptr<Model> train_trees(const TrainingSet& set) {
  const xgboost::Api& api = *xgboost::api(nullptr);
  const std::size_t columns = set.layout.table_columns();
  std::vector<float> values, labels;
  values.reserve(set.chosen.size() * columns);
  for (const std::size_t row : set.chosen) {
    const std::span<const float> all = set.rows.row(row).first(columns);
    values.insert(values.end(), all.begin(), all.end());
    labels.push_back(set.fails(row) ? 1 : 0);
  }
  Handle<MatrixTraits> matrix;
  xgboost::Matrix made_matrix = nullptr;
  check(api.matrix(values.data(), labels.size(), columns, kUnknown, &made_matrix));
  matrix.reset(made_matrix);
  check(api.set_float_info(matrix.get(), "label", labels.data(), labels.size()));
  check(api.set_float_info(matrix.get(), "weight", set.weights.data(), set.weights.size()));
  Handle<BoosterTraits> booster;
  xgboost::Booster made_booster = nullptr;
  check(api.booster(&made_matrix, 1, &made_booster));
  booster.reset(made_booster);
  for (const auto& [name, value] : kParams) check(api.set_param(booster.get(), name, value));
  check(api.set_param(booster.get(), "seed", std::to_string(set.seed).c_str()));
  // Threads that find nothing to do spin.
  const std::size_t threads =
      std::clamp<std::size_t>(values.size() / kValuesPerThread, 1, std::max(1U, std::thread::hardware_concurrency()));
  check(api.set_param(booster.get(), "nthread", std::to_string(threads).c_str()));
  for (int round = 0; round < kRounds; ++round) check(api.update(booster.get(), round, matrix.get()));
  xgboost::Length length = 0;
  const char* bytes = nullptr;
  check(api.save(booster.get(), R"({"format": "json"})", &length, &bytes));
  const Json json = Json::parse({bytes, length});
  return load_trees(json.at("learner").at("gradient_booster").at("model"), set.layout);
}

}  // namespace

extern constinit const ModelKind kTrees{.name = "gbdt",
                                        .doc = "gradient-boosted trees, trained by XGBoost",
                                        .lacks =
                                            [] {
                                              std::string why;
                                              xgboost::api(&why);
                                              return why;
                                            },
                                        .train = train_trees,
                                        .load = load_trees};

}  // namespace ms::predict
