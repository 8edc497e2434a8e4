// Models that transformers wrote (hf_peer.py golden), imported: our logits are the ones it computed; and they still are
// after an export and another import.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "hf/convert.h"
#include "hf_logits.h"
#include "support/files.h"

namespace ms::hf {
namespace {

// Of the largest logit. Both sides sum in f32, in different orders, over products of a few hundred terms.
constexpr double kTolerance = 1e-5;

class Golden : public testing::TestWithParam<const char*> {
 protected:
  static ckpt::Manifest manifest() {
    ckpt::Manifest manifest;
    manifest.run = "0123456789abcdef";
    manifest.created = "2026-01-31T12:00:00Z";
    manifest.version = "1";
    return manifest;
  }
  test::TempDir scratch;
};

void expect_logits(const std::vector<float>& ours, const std::vector<double>& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  double largest = 0, distance = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ASSERT_TRUE(std::isfinite(ours[i])) << i;
    largest = std::max(largest, std::abs(theirs[i]));
    distance = std::max(distance, std::abs(ours[i] - theirs[i]));
  }
  EXPECT_GT(largest, 1.0);
  EXPECT_LE(distance, kTolerance * largest);
}

TEST_P(Golden, LogitsAreThoseOfTransformers) {
  const std::string hf_dir = std::string(MS_GOLDEN_DIR) + "/hf/" + GetParam();
  nlohmann::json golden;
  std::ifstream(hf_dir + "/golden.json") >> golden;
  const auto tokens = golden["tokens"].get<std::vector<std::int32_t>>();
  const auto theirs = golden["logits"].get<std::vector<double>>();

  const nn::ModelConfig model = read_model(hf_dir);
  const ckpt::Parameters imported(import_model(hf_dir, model, manifest(), scratch / "a"));
  const std::vector<float> ours = logits_of(imported, model, tokens);
  expect_logits(ours, theirs);

  const std::string again = scratch / "again";
  export_model(imported, model, again, {});
  const ckpt::Parameters back(import_model(again, read_model(again), manifest(), scratch / "b"));
  EXPECT_EQ(logits_of(back, read_model(again), tokens), ours);
}

class Documents : public Golden {};

TEST_P(Documents, LogitsAreThoseOfABlockDiagonalMask) {
  const std::string hf_dir = std::string(MS_GOLDEN_DIR) + "/hf/" + GetParam();
  nlohmann::json golden, documents;
  std::ifstream(hf_dir + "/golden.json") >> golden;
  std::ifstream(hf_dir + "/documents.json") >> documents;
  const nn::ModelConfig model = read_model(hf_dir);
  const ckpt::Parameters imported(import_model(hf_dir, model, manifest(), scratch / "a"));
  expect_logits(logits_of(imported, model, golden["tokens"].get<std::vector<std::int32_t>>(),
                          documents["starts"].get<std::vector<std::int32_t>>()),
                documents["logits"].get<std::vector<double>>());
}

std::string name_of(const testing::TestParamInfo<const char*>& name) { return name.param; }

INSTANTIATE_TEST_SUITE_P(Models, Golden,
                         testing::Values("gpt2", "gpt2_untied", "llama", "llama_tied", "llama3", "llama_linear",
                                         "llama_yarn", "qwen3_yarn", "phi3", "phi3_partial", "mistral", "qwen2",
                                         "qwen2_window", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe",
                                         "qwen3_moe_dense", "dots1", "neox", "neox_serial"),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Models, Documents, testing::Values("gpt2", "llama", "llama3", "qwen3"), name_of);

}  // namespace
}  // namespace ms::hf
