// Models: each learns what can be learned, gives the same scores after a file, and refuses files that are not one.
#include "predict/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/file.h"
#include "base/hash.h"
#include "base/rng.h"
#include "predict/predictor.h"
#include "support/errors.h"
#include "support/files.h"

namespace ms::predict {
namespace {

using test::TempDir;
using test::thrown_by;

const Layout& layout() {
  static const Layout kLayout{.kinds = {"GPU"}, .metrics = {"temp"}};
  return kLayout;
}

// Rows of noise; those fail whose first column of the table is high and whose metric rises at its end.
Rows learnable(std::size_t count) {
  Rows rows{.width = layout().width()};
  for (std::size_t i = 0; i < count; ++i) {
    const bool fails = i % 4 == 0;
    for (std::size_t c = 0; c < rows.width; ++c) rows.values.push_back(normal(7, 1, i * rows.width + c));
    float* row = rows.values.data() + i * rows.width;
    row[0] += fails ? 3 : 0;
    if (i % 5 == 0) row[3] = kUnknown;
    for (std::size_t c = rows.width - 4; c < rows.width; ++c) row[c] += fails ? 2 : 0;
    rows.info.push_back(
        {.unit = static_cast<std::uint32_t>(i), .label = fails ? Label::fails : Label::healthy, .days_to_failure = 5});
  }
  return rows;
}

TrainingSet first_half(const Rows& rows) {
  TrainingSet set{.rows = rows, .layout = layout()};
  set.chosen.resize(rows.size() / 2);
  std::iota(set.chosen.begin(), set.chosen.end(), 0);
  return set;
}

std::vector<float> scores(const Model& model, const Rows& rows) {
  std::vector<float> out(rows.size());
  model.score(rows.values, rows.width, out);
  return out;
}

// The part of the second half of the rows whose score is on the right side of even odds.
double right(const Model& model, const Rows& rows) {
  const std::vector<float> all = scores(model, rows);
  std::size_t good = 0;
  for (std::size_t i = rows.size() / 2; i < rows.size(); ++i) {
    good += (all[i] > 0) == (rows.info[i].label == Label::fails) ? 1 : 0;
  }
  return static_cast<double>(good) / static_cast<double>(rows.size() - rows.size() / 2);
}

TEST(PredictModels, LearnRepeatAndReturnFromAFile) {
  const Rows rows = learnable(2000);
  for (const ModelKind* kind : model_kinds()) {
    if (!kind->lacks().empty()) continue;  // XGBoost is optional
    const std::unique_ptr<Model> model = train_model(*kind, first_half(rows));
    EXPECT_GT(right(*model, rows), 0.88) << kind->name << "; never failing would be 0.75";
    EXPECT_EQ(scores(*model, rows), scores(*train_model(*kind, first_half(rows)), rows)) << kind->name;
    const Json json = Json::parse(model->save().dump());
    EXPECT_EQ(scores(*model, rows), scores(*load_model(*kind, json, layout()), rows)) << kind->name;
  }
}

// Of rare failures most healthy rows are dropped; scores are log-odds of all rows none the less.
TEST(PredictModels, DroppedHealthyRowsDoNotChangeTheOdds) {
  Rows rows = learnable(8000);
  std::size_t failing = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::fill_n(rows.values.begin() + static_cast<std::ptrdiff_t>(i * rows.width), rows.width, 0.0F);
    rows.info[i].label = i % 100 == 0 ? Label::fails : Label::healthy;
    failing += i % 100 == 0 ? 1 : 0;
  }
  TrainingSet set{.rows = rows, .layout = layout()};
  set.chosen.resize(rows.size());
  std::iota(set.chosen.begin(), set.chosen.end(), 0);
  const std::unique_ptr<Model> model = train_model(*find_model("logistic"), set);
  EXPECT_NEAR(scores(*model, rows)[0], std::log(1.0 / 99), 0.1);
  EXPECT_EQ(failing, 80U);
}

// Of two signs that as many failing rows show, one on the day before the failure and one a month before, the first
// counts.
TEST(PredictModels, RowsNearTheirFailureTeachMore) {
  Rows rows = learnable(8000);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    float* row = rows.values.data() + i * rows.width;
    std::fill(row, row + rows.width, 0.0F);
    const bool fails = rows.info[i].label == Label::fails, near = i % 8 == 0;
    if (fails || i % 3 == 0) row[(fails ? near : i % 2 == 0) ? 0 : 1] = 1;
    rows.info[i].days_to_failure = near ? 1 : 29;
  }
  for (const ModelKind* kind : model_kinds()) {
    if (!kind->lacks().empty() || kind->name == "cnn") continue;  // the 1D-CNN sees other columns
    const auto model = train_model(*kind, first_half(rows));
    Rows asked{.values = std::vector<float>(2 * rows.width), .width = rows.width};
    asked.values[0] = asked.values[rows.width + 1] = 1;
    std::vector<float> odds(2);
    model->score(asked.values, rows.width, odds);
    EXPECT_GT(odds[0], odds[1] + 1) << kind->name;
  }
}

// Of no row a model says a number that is none: the ranking would have no order.
TEST(PredictModels, AScoreThatIsNoNumberIsTheModelsError) {
  const Rows rows = learnable(200);
  Json json = train_model(*find_model("logistic"), first_half(rows))->save();
  json["weights"] = std::vector<float>(json.get<std::vector<float>>("weights").size(), 3e38F);
  const auto model = load_model(*find_model("logistic"), json, layout());
  const Error error = thrown_by([&] { scores(*model, rows); });
  EXPECT_EQ(error.kind(), "predict.unknown");
  EXPECT_NE(error.message().find("no number"), std::string::npos);
}

TEST(PredictModels, NoChanceIsAboveWhatTheEvaluationAllows) {
  const Proof proof{.k = 2, .high = 0.4, .beyond_high = 0.1};
  EXPECT_EQ(proof.most_chance(0), 0.4);
  EXPECT_EQ(proof.most_chance(1), 0.4);
  EXPECT_EQ(proof.most_chance(2), 0.1);
}

Json tree(std::vector<int> left, std::vector<int> right, std::vector<int> column) {
  const std::vector<int> unknown_left(left.size());
  return Json{{"trees",
               {Json{{"left_children", left},
                     {"right_children", right},
                     {"split_indices", column},
                     {"split_conditions", {0.5, -1, 2}},
                     {"default_left", unknown_left}}}}};
}

TEST(PredictModels, TreesOfAFileAreWalkedOnlyWhereTheyEnd) {
  const ModelKind& trees = *find_model("gbdt");
  Rows rows{.width = layout().width()};
  rows.values.assign(2 * rows.width, 0);
  rows.values[rows.width] = 0.5F;  // not below the split
  rows.info.resize(2);
  EXPECT_EQ(scores(*trees.load(tree({1, -1, -1}, {2, -1, -1}, {0, 0, 0}), layout()), rows),
            (std::vector<float>{-1, 2}));
  for (const Json& bad :
       {tree({0, -1, -1}, {2, -1, -1}, {0, 0, 0}), tree({1, -1, -1}, {3, -1, -1}, {0, 0, 0}),
        tree({1, 0, -1}, {2, 2, -1}, {0, 0, 0}), tree({1, -1, -1}, {2, -1, -1}, {1000, 0, 0}),
        tree({1, -1, -1}, {2, -1, -1}, {-1, 0, 0}), tree({1, -1, -1}, {2, -1}, {0, 0, 0}), tree({}, {}, {})}) {
    EXPECT_THROW(trees.load(bad, layout()), JsonError) << bad.dump();
  }
}

// Rows go down together; what a file says of a leaf's children and column means nothing.
TEST(PredictModels, ManyRowsEachReachTheirLeaf) {
  const Json uneven{{"left_children", {1, -1, 3, -1, -1}},
                    {"right_children", {2, 7, 4, -1, 0}},
                    {"split_indices", {0, 1000, 1, 0, -3}},
                    {"split_conditions", {0.5, 1, 0.5, 2, 4}},
                    {"default_left", {true, false, false, true, true}}};
  constexpr float kTry[] = {0, 0.5F, kUnknown};
  constexpr float kLeaves[3][3] = {{1, 1, 1}, {2, 4, 4}, {1, 1, 1}};  // by the two columns' values
  for (const std::size_t count : {1, 63, 64, 65, 200}) {
    Rows rows{.width = layout().width()};
    rows.values.assign(count * rows.width, 0);
    rows.info.resize(count);
    std::vector<float> expected;
    for (std::size_t i = 0; i < count; ++i) {
      rows.values[i * rows.width] = kTry[i % 3];
      rows.values[i * rows.width + 1] = kTry[i / 3 % 3];
      expected.push_back(2 * kLeaves[i % 3][i / 3 % 3]);
    }
    const Json twice{{"trees", {uneven, uneven}}};
    EXPECT_EQ(scores(*find_model("gbdt")->load(twice, layout()), rows), expected) << count;
  }
}

TEST(PredictModels, FilesThatAreNoModelAreRefused) {
  const TempDir dir;
  const std::string path = dir / "model";
  const auto kind_of = [&](const std::string& text) {
    write_file_atomic(path, text);
    return thrown_by([&] { load_predictor(path); }).kind();
  };
  const auto sealed = [](const std::string& body) {
    return R"({"format":"ms-predict","version":2,"xxh64":")" + hash_hex(xxh64(body)) + "\"}\n" + body + "\n";
  };
  for (const std::string& text :
       {std::string(), std::string("\0\xFF\n", 3), std::string("{}"), std::string("[1]\n2"),
        std::string(R"({"format":"ms-predict"})"), std::string(R"({"format":"ms-predict","version":1,"xxh64":""})"),
        sealed("{}") + "x", sealed("{}"), sealed("[]"), sealed(std::string(5000, '[')),
        sealed(R"({"layout":{"kinds":[],"facts":[],"metrics":[],"bin_days":1e-300}})")}) {
    EXPECT_EQ(kind_of(text), "predict.file") << text.substr(0, 60);
  }
}

}  // namespace
}  // namespace ms::predict
