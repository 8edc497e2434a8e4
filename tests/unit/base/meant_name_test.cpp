// What a wrong name may have meant: names of other programs, then near ones, in this section, then in others.
#include "base/meant_name.h"

#include <gtest/gtest.h>

namespace ms {
namespace {

const KnownKey kKnown[] = {{"model", "hidden"}, {"model", "layers"}, {"mesh", "tp"},   {"mesh", "pp"},
                           {"overlap", "tp"},   {"optim", "lr"},     {"data", "train"}};

TEST(MeantName, Keys) {
  struct Row {
    const char *typed, *meant;
  };
  for (const Row& row : {Row{"model.hidden_size", "model.hidden"}, Row{"train.d_model", "model.hidden"},
                         Row{"hidden-size", "model.hidden"}, Row{"parallel.tp", "mesh.tp"},
                         Row{"parallelism.pipeline", "mesh.pp"}, Row{"optim.learning_rate", "optim.lr"},
                         Row{"data.path", "data.train"}, Row{"checkpoint.path", ""}, Row{"model.hiden", "model.hidden"},
                         Row{"train.lr", "optim.lr"}, Row{"modle.layers", "model.layers"}, Row{"x.y", ""}}) {
    EXPECT_EQ(meant_key(row.typed, kKnown).value_or(""), row.meant) << row.typed;
  }
}

TEST(MeantName, SectionsAndChoices) {
  const std::string sections[] = {"model", "mesh", "overlap"}, choices[] = {"cpu", "cuda"};
  EXPECT_EQ(meant_section("parallel", sections), "mesh");
  EXPECT_EQ(meant_section("modle", sections), "model");
  EXPECT_EQ(meant_section("zzz", sections), std::nullopt);
  EXPECT_EQ(meant_choice("gpu", choices), "cuda");
  EXPECT_EQ(meant_choice("cpuu", choices), "cpu");
  EXPECT_EQ(meant_choice("bfloat16", choices), std::nullopt) << "of another key";
}

}  // namespace
}  // namespace ms
