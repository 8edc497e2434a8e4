// A checkpoint of another model is refused on resume, by the key that is to blame.
#include "train/checkpoint/restore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/engine/state.h"

namespace ms::train {
namespace {

using ::testing::HasSubstr;

constexpr const char* kModel = R"(
[model]
layers = 2
hidden = 24
heads = 6
vocab = 37
seq = 12
[train]
global_batch = 12
)";

// What a run with these settings on one rank would have saved.
ckpt::Manifest manifest_of(const std::vector<std::string>& assignments) {
  const Loaded loaded = load_text(kModel, "test", assignments);
  ckpt::Manifest manifest;
  manifest.config = loaded.resolved;
  ckpt::FileEntry file;
  for (const ckpt::Piece& piece : saved_pieces(make_plan(loaded.settings, 1), {})) file.pieces.push_back({piece, 0});
  manifest.files.push_back(file);
  return manifest;
}

std::string refusal(const std::vector<std::string>& there, const std::vector<std::string>& here) {
  const Settings settings = load_text(kModel, "test", here).settings;
  try {
    check_model(settings.model, manifest_of(there), "step-00000005");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "ckpt.mismatch");
    return error.message();
  }
  return "";
}

TEST(CheckModel, TakesWhatItWas) {
  const std::vector<std::vector<std::string>> models{
      {}, {"model.family=llama"}, {"model.parallel_block=true"}, {"model.window=5"}};
  for (const std::vector<std::string>& model : models) EXPECT_EQ(refusal(model, model), "");
  // How it is computed is not what is computed.
  EXPECT_EQ(refusal({"model.parallel_block=true"}, {"model.parallel_block=true", "model.fused=false"}), "");
  EXPECT_EQ(refusal({}, {"model.init_std=0.5"}), "");
}

TEST(CheckModel, TakesTheFirstPositionsWhereThatIsAsked) {
  const ckpt::Manifest manifest = manifest_of({});
  const auto takes = [&](std::int64_t seq, bool first_positions) {
    const nn::ModelConfig model = load_text(kModel, "test", {fmt::format("model.seq={}", seq)}).settings.model;
    try {
      check_model(model, manifest, "step-00000005", first_positions);
    } catch (const Error&) { return false; }
    return true;
  };
  EXPECT_TRUE(takes(8, true));
  EXPECT_FALSE(takes(8, false)) << "a run would save them";
  EXPECT_TRUE(takes(12, true));
  EXPECT_TRUE(takes(12, false));
  EXPECT_FALSE(takes(16, true));
}

TEST(CheckModel, NamesTheKeyThatDiffers) {
  struct Case {
    std::vector<std::string> there, here;
    const char* message;
  };
  const std::vector<Case> cases{
      {{}, {"model.parallel_block=true"}, "model.parallel_block is false there, true here"},
      {{"model.parallel_block=true"}, {}, "model.parallel_block is true there, false here"},
      {{}, {"model.window=5"}, "model.window is 0 there, 5 here"},
      {{"model.window=5"}, {"model.window=6"}, "model.window is 5 there, 6 here"},
      {{}, {"model.norm_eps=1e-6"}, "model.norm_eps is 1e-05 there, 1e-06 here"},
      {{"model.family=llama", "model.experts=4"},
       {"model.family=llama", "model.experts=4", "model.experts_per_token=3"},
       "model.experts_per_token is 2 there, 3 here"},
      {{"model.family=llama"}, {"model.family=llama", "model.experts=4"}, "model.experts is 0 there, 4 here"},
      {{"model.family=llama", "model.experts=4", "model.router=sigmoid"},
       {"model.family=llama", "model.experts=4"},
       "model.router is sigmoid there, softmax here"},
  };
  for (const Case& c : cases) EXPECT_THAT(refusal(c.there, c.here), HasSubstr(c.message));
}

}  // namespace
}  // namespace ms::train
