// The busiest rank of ep, by hand.
#include "train/simulate/expert_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "support/files.h"

namespace ms::train {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;

Plan plan_of(std::int64_t experts, std::int64_t per_token, std::int64_t ep, double capacity = 0) {
  Settings settings;
  settings.model = {.family = "llama", .layers = 2, .hidden = 64, .heads = 4, .vocab = 257, .seq = 32};
  settings.model.experts = experts, settings.model.experts_per_token = per_token;
  settings.mesh.dp = settings.mesh.ep = ep;
  settings.train.global_batch = ep;
  settings.train.microbatch = 1;
  settings.train.moe_capacity = capacity;
  return make_plan(settings, static_cast<int>(ep));
}

TEST(ExpertLoad, OfZipf) {
  struct Case {
    const char* load;
    std::int64_t experts, per_token, ep;
    double capacity, busiest;
  };
  const Case cases[] = {
      {"uniform", 4, 1, 4, 0, 1},
      {"zipf=0", 4, 1, 4, 0, 1},
      {"zipf=1", 4, 1, 4, 0, 4 / (1 + 1 / 2.0 + 1 / 3.0 + 1 / 4.0)},  // a rank holds one expert
      {"zipf=2", 2, 1, 2, 0, 2 * 0.8},
      {"zipf=1", 4, 1, 1, 0, 1},        // a rank holds all
      {"zipf=9", 4, 2, 4, 0, 2},        // at most a row for each token, a half of all rows
      {"zipf=1", 4, 3, 4, 0, 4 / 3.0},  // 1/1 of 25/12 would be more than a third
      {"zipf=9", 4, 2, 4, 1.25, 1.25},  // the rest is dropped
      {"zipf=2", 2, 1, 2, 1.9, 1.6},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(busiest_ranks(c.load, plan_of(c.experts, c.per_token, c.ep, c.capacity)),
                ElementsAre(DoubleNear(c.busiest, 1e-12), DoubleNear(c.busiest, 1e-12)))
        << c.load << " " << c.experts << " " << c.per_token << " " << c.ep << " " << c.capacity;
  }
}

// Which experts share a rank is drawn: never better than an even load, never worse than the most chosen together.
TEST(ExpertLoad, OfZipfDrawsWhichExpertsShareARank) {
  const double all = 1 + 1 / 2.0 + 1 / 3.0 + 1 / 4.0;
  const std::vector<double> busiest = busiest_ranks("zipf=1", plan_of(4, 1, 2));
  EXPECT_THAT(busiest, Each(::testing::AllOf(::testing::Ge(2 * (1 + 1 / 4.0) / all - 1e-12),
                                             ::testing::Le(2 * (1 + 1 / 2.0) / all + 1e-12))));
  EXPECT_EQ(busiest, busiest_ranks("zipf=1", plan_of(4, 1, 2)));
}

TEST(ExpertLoad, DenseLayersHaveNone) {
  Plan plan = plan_of(4, 1, 4);
  plan.settings.model.dense_layers = "0";
  EXPECT_THAT(busiest_ranks("zipf=1", plan), ElementsAre(1, ::testing::Gt(1.5)));
}

class ExpertLoadFile : public ::testing::Test {
 protected:
  std::vector<double> read(const std::string& text) {
    std::ofstream(path_) << text;
    return busiest_ranks(path_, plan_of(4, 2, 2));
  }
  test::TempDir dir_;
  std::string path_ = dir_.path() + "/metrics.jsonl";
};

constexpr const char* kLine =
    R"({"step":4,"expert_load":{"most":2,"least":0,"dropped":0,"layers":[[1.5,1,0.5,1],[0.5,0.5,1,2]]}})";

TEST_F(ExpertLoadFile, TheLastLineWithLoads) {
  const std::string earlier = R"({"step":2,"expert_load":{"layers":[[1,1,1,1],[1,1,1,1]]}})";
  const auto expected = ElementsAre(DoubleNear(1.25, 1e-12), DoubleNear(1.5, 1e-12));
  EXPECT_THAT(read(earlier + "\n" + kLine + "\n" + R"({"step":5,"loss":3})" + "\n"), expected);
  EXPECT_THAT(read(std::string(kLine) + "\n{\"step\":6,\"expe"), expected);  // being written
  EXPECT_THAT(read(kLine), expected);
}

TEST_F(ExpertLoadFile, DenseLayersHaveNone) {
  std::ofstream(path_) << R"({"step":4,"expert_load":{"layers":[[],[0.5,0.5,1,2]]}})"
                       << "\n";
  EXPECT_THROW(busiest_ranks(path_, plan_of(4, 2, 2)), Error) << "the model has experts there";
  Plan plan = plan_of(4, 2, 2);
  plan.settings.model.dense_layers = "0";
  EXPECT_THAT(busiest_ranks(path_, plan), ElementsAre(1, DoubleNear(1.5, 1e-12)));
}

TEST_F(ExpertLoadFile, Refusals) {
  for (const char* text :
       {"", "\n\n", "{\"step\":1}\n", "not JSON\n", R"({"expert_load":7})", R"({"expert_load":{"layers":[["x"]]}})",
        R"({"expert_load":{"layers":[[1,1,1,1]]}})", R"({"expert_load":{"layers":[[1,1,1],[1,1,1]]}})",
        R"({"expert_load":{"layers":[[1,1,1,1],[0,0,0,0]]}})",
        R"({"expert_load":{"layers":[[1,1,1,1],[-1,1,1,1]]}})"}) {
    try {
      read(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "cli.value") << text;
      EXPECT_EQ(error.blame(), Blame::user) << text;
    }
  }
  EXPECT_THROW(busiest_ranks(dir_.path() + "/absent", plan_of(4, 2, 2)), Error);
}

TEST(ExpertLoad, Refusals) {
  for (const char* load : {"zipf=", "zipf=x", "zipf=-1", "zipf=11", "zipf=nan", "zipf=1x"})
    EXPECT_THROW(busiest_ranks(load, plan_of(4, 2, 2)), Error) << load;
  EXPECT_THROW(busiest_ranks("uniform", plan_of(0, 2, 1)), Error);
}

}  // namespace
}  // namespace ms::train
