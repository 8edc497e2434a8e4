// The files beside the weights: the tokens that they name.
#include "hf/companions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hf/convert.h"
#include "support.h"

namespace ms::hf {
namespace {

TEST(EndTokens, AreThoseOfGenerationBeforeThoseOfTheModel) {
  const TempDir at;
  EXPECT_THAT(end_tokens(at.path()), testing::IsEmpty());
  spill(at / "config.json", R"({"eos_token_id": 5})");
  EXPECT_THAT(end_tokens(at.path()), testing::ElementsAre(5));
  spill(at / "generation_config.json", R"({"eos_token_id": null})");
  EXPECT_THAT(end_tokens(at.path()), testing::ElementsAre(5));
  spill(at / "generation_config.json", R"({"eos_token_id": [2, 3, -1, "x", 99999999999]})");
  EXPECT_THAT(end_tokens(at.path()), testing::ElementsAre(2, 3));
  spill(at / "generation_config.json", "[");
  EXPECT_EQ(thrown_by([&] { end_tokens(at.path()); }).kind(), "hf.config");
}

TEST(AddedTokens, AreReadOutOfATokenizer) {
  EXPECT_THAT(added_tokens(R"({"added_tokens": [{"id": 3, "content": "<s>"}, {"id": "4", "content": "x"}, 1]})"),
              testing::ElementsAre(testing::Pair(3, "<s>")));
  for (const char* other : {"", "[]", "{}", R"({"added_tokens": 1})"}) EXPECT_TRUE(added_tokens(other).empty());
}

TEST(ReadModel, SaysThatThereIsNoConfig) {
  const TempDir dir;
  const Error error = thrown_by([&] { read_model(dir.path()); });
  EXPECT_EQ(error.blame(), Blame::user);
  EXPECT_THAT(error.message(), testing::HasSubstr("config.json"));
}

}  // namespace
}  // namespace ms::hf
