// Which samples rollbacks leave out, and which checkpoints they leave behind.
#include "train/checkpoint/rollbacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace ms::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Rollback to(std::int64_t step, std::int64_t begin, std::int64_t end, const std::string& source = "data") {
  return {.at = step + 3, .skip = {step, begin, end}, .source = source, .seed = 7, .why = "step \"9\""};
}
ckpt::Manifest saved(std::int64_t step, std::int64_t rollbacks) {
  ckpt::Manifest manifest;
  manifest.step = step;
  manifest.data.rollbacks = rollbacks;
  return manifest;
}

TEST(Rollbacks, AreReadAsTheyWereWritten) {
  const std::vector<Rollback> rollbacks{to(4, 32, 56), to(2, 16, 80)};
  EXPECT_EQ(parse_rollbacks(to_json(rollbacks), "file"), rollbacks);
  EXPECT_THAT(parse_rollbacks("", "file"), IsEmpty());
  for (const char* text : {"{", "{}", R"({"rollbacks": [{"at": 1}]})", R"({"rollbacks": 3})"}) {
    EXPECT_THROW(parse_rollbacks(text, "file"), Error) << text;
  }
  EXPECT_THROW(parse_rollbacks(to_json({to(4, 56, 32)}), "file"), Error);
}

TEST(Rollbacks, TakeThePlaceOfThoseBehindThem) {
  const data::Skip first{4, 32, 56}, second{10, 104, 128};
  EXPECT_THAT(skips_of({to(4, 32, 56), to(10, 104, 128)}, "data", 7), ElementsAre(first, second));
  EXPECT_THAT(skips_of({to(4, 32, 56), to(4, 32, 80)}, "data", 7), ElementsAre(data::Skip{4, 32, 80}));
  EXPECT_THAT(skips_of({to(4, 32, 56), to(10, 104, 128), to(2, 16, 200)}, "data", 7),
              ElementsAre(data::Skip{2, 16, 200}));
}

TEST(Rollbacks, OfOtherDataLeaveNothingOut) {
  EXPECT_THAT(skips_of({to(4, 32, 56)}, "other", 7), IsEmpty());
  EXPECT_THAT(skips_of({to(4, 32, 56)}, "data", 8), IsEmpty());
  EXPECT_THAT(skips_of({to(4, 32, 56), to(3, 0, 9, "other")}, "data", 7), IsEmpty()) << "the run went on from step 3";
}

TEST(Rollbacks, LeaveWhatWasSavedBeforeThemAndLater) {
  const std::vector<Rollback> rollbacks{to(4, 32, 56), to(10, 104, 128)};
  EXPECT_FALSE(is_left(rollbacks, saved(4, 0)));
  EXPECT_TRUE(is_left(rollbacks, saved(6, 0)));
  EXPECT_FALSE(is_left(rollbacks, saved(10, 1)));
  EXPECT_TRUE(is_left(rollbacks, saved(12, 1)));
  EXPECT_FALSE(is_left(rollbacks, saved(12, 2)));
}

}  // namespace
}  // namespace ms::train
