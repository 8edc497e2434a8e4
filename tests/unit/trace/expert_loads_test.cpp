// Loads of experts as metrics.jsonl has them, and who starves.
#include "trace/expert_loads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ms::trace {
namespace {

using ::testing::ElementsAre;

constexpr const char* kLine =
    R"({"step":4,"loss":3,"expert_load":{"most":2,"dropped":0.125,"layers":[[1.5,0.5],[0,2]]}})";

TEST(ExpertLoads, OfTheLastLineThatHasThem) {
  const std::string line = kLine, earlier = R"({"step":2,"expert_load":{"layers":[[1,1]]}})";
  for (const std::string& text :
       {line, line + "\n", earlier + "\n" + line + "\n{\"step\":5}\n{\"step\":6,\"expert_l"}) {
    const auto loads = last_expert_loads(text);
    ASSERT_TRUE(loads) << text;
    EXPECT_EQ(loads->step, 4) << text;
    EXPECT_EQ(loads->dropped, 0.125) << text;
    EXPECT_THAT(loads->by_layer, ElementsAre(ElementsAre(1.5, 0.5), ElementsAre(0, 2))) << text;
  }
  const auto dense = last_expert_loads(R"({"step":2,"expert_load":{"layers":[[],[1,1],[]]}})");
  ASSERT_TRUE(dense);
  EXPECT_EQ(dense->layers(), 3U);
  EXPECT_EQ(dense->experts(), 2U) << "of the layers that have some";
  EXPECT_EQ(last_expert_loads(earlier)->layers(), 1U);
  EXPECT_EQ(last_expert_loads(earlier)->experts(), 2U);
}

TEST(ExpertLoads, OtherLinesHaveNone) {
  for (const char* text : {"", "\n\n", "{\"step\":1}", "not JSON", "7", R"({"expert_load":7})",
                           R"({"expert_load":{"layers":[]}})", R"({"expert_load":{"layers":[[]]}})",
                           R"({"expert_load":{"layers":[["x"]]}})", R"({"expert_load":{"layers":[[1,1],[1]]}})",
                           R"({"expert_load":{"layers":[[1,-1]]}})", R"({"expert_load":{"layers":{"a":[1]}}})"})
    EXPECT_FALSE(last_expert_loads(text)) << text;
}

TEST(ExpertLoads, ExpertsStarveBelowATenthOfAnEvenShare) {
  EXPECT_THAT(starving_experts({{2.25, 0.75, 0}, {0.09, 1.5, 1.41}}),
              ::testing::StartsWith("2 of 6 experts had less than a tenth"));
  EXPECT_EQ(starving_experts({{0.1, 1.9}, {1, 1}}), "");
}

}  // namespace
}  // namespace ms::trace
