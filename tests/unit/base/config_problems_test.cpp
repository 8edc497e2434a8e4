// Problems of a configuration beside each other: which are left out, and what is suggested.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/config.h"

namespace ms {
namespace {

struct SmallModel {
  std::int64_t layers = 2;
  double dropout = 0;
  bool tied = true;
  std::string device = "cpu";
};
constexpr Field<SmallModel> kSmallFields[] = {
    {.key = "layers", .member = &SmallModel::layers, .doc = "Layers.", .min = 1, .max = 1000},
    {.key = "dropout", .member = &SmallModel::dropout, .doc = "Dropout."},
    {.key = "tied", .member = &SmallModel::tied, .doc = "Tied."},
    {.key = "device", .member = &SmallModel::device, .doc = "Device.", .choices = {"cpu", "cuda"}}};

struct FollowOn {
  const char* assignment;
  std::vector<const char*> problems;
};

// A rule that is broken only because a value was refused, or went to no key, would cite a default.
TEST(ConfigProblems, SayNothingThatFollowsFromAnotherOne) {
  const char* const rule = "model.layers = 2 is odd to model.dropout = 0";
  for (const FollowOn& c : {FollowOn{"model.layers=3", {rule}}, FollowOn{"model.layers=0", {"must be 1 to 1000"}},
                            FollowOn{"model.layrs=3", {"did you mean 'model.layers'?"}},
                            FollowOn{"model.tied=3", {"model.tied: expected true or false", rule}},
                            FollowOn{"model.device=gpu", {"did you mean 'cuda'?", rule}}}) {
    SmallModel model;
    ConfigSchema schema;
    schema.section("model", "The model.", model, kSmallFields);
    schema.set(c.assignment);
    schema.add_problem("model.dropout", rule);
    const std::vector<ConfigProblem> problems = schema.problems();
    ASSERT_EQ(problems.size(), c.problems.size()) << c.assignment;
    for (std::size_t i = 0; i < problems.size(); ++i) {
      EXPECT_THAT(problems[i].str(), testing::HasSubstr(c.problems[i])) << c.assignment;
    }
  }
}

// The file of another program is named as such, in one sentence; a file that is ours in parts is read part by part.
TEST(ConfigProblems, TellAFileOfAnotherProgram) {
  for (const FollowOn& c :
       {FollowOn{"[slurm]\n[loan]\n",
                 {"t.toml:1:1: this file is for something else: it has [loan], [slurm], expected "
                  "[model]"}},
        FollowOn{"[slurm]\n[loan]\n[model]\n", {"unknown section 'slurm'", "unknown section 'loan'"}},
        FollowOn{"[slurm]\n[modle]\n", {"unknown section 'slurm'", "did you mean 'model'?"}},
        FollowOn{"key = 1\n[slurm]\n[loan]\n", {"unknown key 'key'", "'slurm'", "'loan'"}},
        FollowOn{"[slurm]\n", {"unknown section 'slurm'"}}}) {
    SmallModel model;
    ConfigSchema schema;
    schema.section("model", "The model.", model, kSmallFields);
    schema.load_text(c.assignment, "t.toml");
    const std::vector<ConfigProblem> problems = schema.problems();
    ASSERT_EQ(problems.size(), c.problems.size()) << c.assignment;
    for (std::size_t i = 0; i < problems.size(); ++i) {
      EXPECT_THAT(problems[i].str(), testing::HasSubstr(c.problems[i])) << c.assignment;
    }
  }
}

}  // namespace
}  // namespace ms
