// Which copy of a model's weights is imported, of those in one checkpoint.
#include "hf/copies.h"

#include <gmock/gmock.h>

#include <cstring>

#include "hf/foreign_tensors.h"
#include "hf/names.h"
#include "support.h"
#include "support/torch_file.h"

namespace ms::hf {
namespace {

using testing::ElementsAre;

std::vector<std::string> names_behind(const std::vector<std::string>& prefixes, const nn::ModelConfig& model) {
  std::vector<std::string> names;
  for (const std::string& prefix : prefixes) {
    for (const Mapped& tensor : tensors_of(model, Layout::separate)) names.push_back(prefix + tensor.name);
  }
  return names;
}

// The prefix of the copy that is taken, or the kind of the refusal.
std::string taken(const std::vector<std::string>& names, const nn::ModelConfig& model,
                  const std::optional<std::string>& prefix = {}) {
  const Copies found = find_copies(names, Naming::transformers, model);
  try {
    return found.copies.at(choose_copy(found.copies, prefix, "x")).prefix;
  } catch (const Error& error) { return "refused: " + error.kind(); }
}

constexpr const char* kRefused = "refused: hf.import";

TEST(Copies, TheOneThatTrainsIsTakenAndNotTheOneWithTheShortestPrefix) {
  const nn::ModelConfig model = tiny("llama", false);
  struct Row {
    std::vector<std::string> prefixes;
    std::string taken;
  };
  const std::vector<Row> rows{
      {{""}, ""},
      {{"ema."}, "ema."},
      {{"model.", "ema."}, "model."},
      {{"model.", "m.", "v."}, "model."},
      {{"model.", "grad.", "opt."}, "model."},
      {{"", "ema."}, ""},
      {{"state_dict.model.", "best."}, "state_dict.model."},
      {{"mp_rank_00_model_states.module."}, "mp_rank_00_model_states.module."},
      {{"policy.", "ref."}, kRefused},
      {{"ema.", "best."}, kRefused},
      {{"model.", "module."}, kRefused},
  };
  for (const Row& row : rows) EXPECT_EQ(taken(names_behind(row.prefixes, model), model), row.taken);
}

TEST(Copies, AnIncompleteOneIsNotReplacedByAnother) {
  const nn::ModelConfig model = tiny("llama", false);
  std::vector<std::string> names = names_behind({"model.", "ema."}, model);
  names.erase(names.begin());  // the embedding
  EXPECT_EQ(taken(names, model), kRefused);
  EXPECT_EQ(taken(names, model, "ema."), "ema.");
  EXPECT_EQ(taken(names, model, "model"), "model.");
  EXPECT_EQ(taken(names, model, "mod"), kRefused);
}

// A vision tower has layers with names like those of the model.
TEST(Copies, TheOnlyCompleteOneIsTakenBesideOthersThatAreNotTheModel) {
  const nn::ModelConfig model = tiny("llama", false);
  const std::vector<std::string> tower{"vision_tower.encoder.layers.0.self_attn.q_proj.weight",
                                       "vision_tower.encoder.layers.0.self_attn.k_proj.weight"};
  const auto beside_tower = [&](std::vector<std::string> names) {
    names.insert(names.end(), tower.begin(), tower.end());
    return taken(names, model);
  };
  EXPECT_EQ(beside_tower(names_behind({"language_model."}, model)), "language_model.");
  EXPECT_EQ(beside_tower(names_behind({"language_model.", "draft."}, model)), kRefused);
  std::vector<std::string> incomplete = names_behind({"language_model."}, model);
  incomplete.pop_back();
  EXPECT_EQ(beside_tower(incomplete), kRefused);
  std::vector<std::string> head_outside;  // as newer versions of LLaVA
  for (const std::string& name : names_behind({""}, model))
    head_outside.push_back(name == head_name(model) ? name : "model.language_model." + name.substr(6));
  EXPECT_EQ(beside_tower(head_outside), kRefused);
}

// The name of a tensor may have megabytes, and a file a million prefixes.
TEST(Copies, NamesOfManyDotsTakeLinearTime) {
  const nn::ModelConfig model = tiny("llama", false);
  std::vector<std::string> names = names_behind({"model.", "a." + std::string(1 << 20, '.')}, model);
  names.emplace_back(1 << 24, '.');
  std::string wrapped;
  for (int i = 0; i < 1 << 20; ++i) wrapped += "_orig_mod.";
  names.push_back(without_wrappers(wrapped + "x"));
  EXPECT_EQ(names.back(), "x");
  names.resize(names.size() - 1);
  EXPECT_EQ(find_copies(names, Naming::transformers, model).copies.size(), 2U);
  EXPECT_EQ(find_copies(names, Naming::titan, model).copies.size(), 0U);
  std::vector<std::string> many;
  for (int i = 0; i < 20'000; ++i) {
    for (const char* name : {"norm.weight", "embed_tokens.weight", "buffer"})
      many.push_back("m" + std::to_string(i) + "." + name);
  }
  const Copies found = find_copies(many, Naming::transformers, model);
  ASSERT_EQ(found.copies.size(), 20'000U);
  EXPECT_EQ(found.copy_of[5], found.copy_of[3]);
}

TEST(Copies, ABufferIsOfTheInnermostCopy) {
  const nn::ModelConfig model = tiny("llama", false);
  std::vector<std::string> names;
  for (const std::string prefix : {"", "a.", "a.b.", "a.c."}) {
    names.push_back(prefix + "norm.weight");
    names.push_back(prefix + "embed_tokens.weight");
  }
  names.insert(names.end(), {"a.b.x", "a.bb.x", "a.x", "b.x", "a.c.y.z"});
  const Copies found = find_copies(names, Naming::transformers, model);
  EXPECT_THAT(found.copy_of, ElementsAre(0U, 0U, 1U, 1U, 2U, 2U, 3U, 3U, 2U, 1U, 1U, 0U, 3U));
}

TEST(Copies, AModelWithoutItsHeadAndATiedHeadAreComplete) {
  const nn::ModelConfig model = tiny("qwen2", true);
  std::vector<std::string> bare, head;
  for (const std::string& name : names_behind({""}, model)) {
    bare.push_back("model." + name.substr(prefix_of(model).size()));
    head.push_back(name == embedding_name(model) ? head_name(model) : name);
    bare.push_back("ema." + name);
    head.push_back("ema." + name);
  }
  EXPECT_EQ(taken(bare, model), "");
  EXPECT_EQ(taken(head, model), "");
}

TEST(Copies, OneTensorOfACommonNameIsNotACopy) {
  const nn::ModelConfig model = tiny("llama", false);
  std::vector<std::string> names = names_behind({"model."}, model);
  names.insert(names.end(), {"vision.norm.weight", "model.model.layers.0.self_attn.rotary_emb.inv_freq"});
  const Copies found = find_copies(names, Naming::transformers, model);
  ASSERT_EQ(found.copies.size(), 1U);
  EXPECT_TRUE(found.copies[0].is_complete);
  EXPECT_EQ(found.copy_of[names.size() - 2], std::nullopt);
  EXPECT_EQ(found.copy_of[names.size() - 1], 0U);
}

TEST(Copies, TitansNamesAndUniversalOnesAreFound) {
  const nn::ModelConfig model = tiny("llama", false);
  const std::vector<std::string> titan{"model.tok_embeddings.weight", "model.layers.1.attention.wq.weight",
                                       "ema.layers.1.feed_forward.w1.weight", "ema.output.weight"};
  const Copies of_titan = find_copies(titan, Naming::titan, model);
  EXPECT_THAT(of_titan.copy_of, ElementsAre(1U, 1U, 0U, 0U));
  std::vector<std::string> universal;
  for (const std::string& name : names_behind({"zero."}, model)) {
    universal.push_back(name + ".fp32.param");
    universal.push_back(name + ".exp_avg.param");
  }
  const Copies of_universal = find_copies(universal, Naming::universal, model);
  ASSERT_EQ(of_universal.copies.size(), 1U);
  EXPECT_EQ(of_universal.copies[0].prefix, "zero.");
  EXPECT_TRUE(of_universal.copies[0].is_complete);
}

// A file of torch.save with copies of the weights, each of one value.
std::string file_of(const std::vector<std::pair<std::string, float>>& copies, const nn::ModelConfig& model) {
  test::TorchFileWriter writer;
  std::vector<std::pair<std::string, std::string>> dicts;
  for (const auto& [key, value] : copies) {
    std::vector<std::pair<std::string, std::string>> tensors;
    for (const Mapped& tensor : tensors_of(model, Layout::separate)) {
      std::size_t elements = 1;
      for (const std::int64_t size : tensor.shape) elements *= static_cast<std::size_t>(size);
      tensors.emplace_back("_orig_mod." + tensor.name,
                           writer.tensor(std::vector<float>(elements, value), tensor.shape));
    }
    dicts.emplace_back(key, test::pickled_dict(tensors));
  }
  return writer.file(test::pickled_dict(dicts));
}

TEST(ForeignTensors, AreOfTheCopyThatIsChosen) {
  const nn::ModelConfig model = tiny("llama", false);
  const TempDir dir;
  spill(dir / "a.pt", file_of({{"model", 1}, {"ema", 2}}, model));
  std::vector<std::string> said;
  ForeignOptions options{.say = [&](const std::string& text) { said.push_back(text); }};
  const auto value_of = [&](const std::string& name) {
    const auto views = foreign_tensors(dir / name, model, options);
    EXPECT_EQ(views.size(), tensors_of(model, Layout::separate).size());
    const std::vector<std::byte> bytes = views.at("model.norm.weight").read();
    float value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  };
  EXPECT_EQ(value_of("a.pt"), 1);
  EXPECT_EQ(said.size(), 1U);
  options.prefix = "ema";
  EXPECT_EQ(value_of("a.pt"), 2);
  options.prefix = "best";
  EXPECT_EQ(thrown_by([&] { value_of("a.pt"); }).kind(), "hf.import");
  options.prefix.reset();
  spill(dir / "b.pt", file_of({{"policy", 1}, {"ref", 2}}, model));
  EXPECT_EQ(thrown_by([&] { value_of("b.pt"); }).kind(), "hf.import");
}

// A file of torch.save with tensors of these names, by the key before them: shapes are those of the model.
struct Named {
  std::string key;
  float value = 0;
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> tensors = {};
};
std::string file_of(const std::vector<Named>& copies) {
  test::TorchFileWriter writer;
  std::vector<std::pair<std::string, std::string>> dicts;
  for (const Named& copy : copies) {
    std::vector<std::pair<std::string, std::string>> tensors;
    for (const auto& [name, shape] : copy.tensors) {
      std::size_t elements = 1;
      for (const std::int64_t size : shape) elements *= static_cast<std::size_t>(size);
      tensors.emplace_back(name, writer.tensor(std::vector<float>(elements, copy.value), shape));
    }
    dicts.emplace_back(copy.key, test::pickled_dict(tensors));
  }
  return writer.file(test::pickled_dict(dicts));
}

float first_of(const TensorView& view) {
  const std::vector<std::byte> bytes = view.read();
  float value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

TEST(ForeignTensors, MastersOfAUniversalCheckpointComeBeforeTheWeightsInBfloat16) {
  const nn::ModelConfig model = tiny("llama", false);
  const TempDir dir;
  Named module{.key = "module", .value = 1}, zero{.key = "zero", .value = 2};
  for (const Mapped& tensor : tensors_of(model, Layout::separate)) {
    module.tensors.emplace_back(tensor.name, tensor.shape);
    zero.tensors.emplace_back(tensor.name + ".fp32.param", tensor.shape);
    zero.tensors.emplace_back(tensor.name + ".exp_avg.param", tensor.shape);
  }
  spill(dir / "a.pt", file_of({module, zero}));
  std::vector<std::string> said;
  ForeignOptions options{.say = [&](const std::string& text) { said.push_back(text); }};
  const auto value_of = [&] { return first_of(foreign_tensors(dir / "a.pt", model, options).at("model.norm.weight")); };
  EXPECT_EQ(value_of(), 2);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_THAT(said[0], testing::HasSubstr("behind 'zero.', not those behind 'module.' (21 tensors)"));
  options.prefix = "zero.";
  EXPECT_EQ(value_of(), 2);
  options.prefix = "module";
  EXPECT_EQ(value_of(), 1);
  options.prefix.reset();
  zero.tensors.pop_back();
  zero.tensors.pop_back();
  spill(dir / "a.pt", file_of({module, zero}));
  EXPECT_EQ(value_of(), 1);
}

// Layers of Megatron-LM have norms of the same name as those of transformers.
TEST(ForeignTensors, NamesOfALayerOfMegatronDoNotHideItsEmbedding) {
  const nn::ModelConfig model = tiny("llama", false);
  const std::int64_t hidden = model.hidden, ffn = model.ffn(), qkv = (model.heads + 2 * model.kv()) * model.head_dim();
  const TempDir dir;
  Named megatron{.key = "model",
                 .value = 1,
                 .tensors = {{"embedding.word_embeddings.weight", {model.vocab, hidden}},
                             {"decoder.final_layernorm.weight", {hidden}},
                             {"output_layer.weight", {model.vocab, hidden}},
                             {"output_layer._extra_state", {3}}}};
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const std::vector<std::pair<std::string, std::vector<std::int64_t>>> of_layer{
        {"input_layernorm.weight", {hidden}},
        {"self_attention.linear_qkv.weight", {qkv, hidden}},
        {"self_attention.linear_qkv._extra_state", {3}},
        {"self_attention.linear_proj.weight", {hidden, model.heads * model.head_dim()}},
        {"pre_mlp_layernorm.weight", {hidden}},
        {"mlp.linear_fc1.weight", {2 * ffn, hidden}},
        {"mlp.linear_fc2.weight", {hidden, ffn}}};
    for (const auto& [name, shape] : of_layer)
      megatron.tensors.emplace_back("decoder.layers." + std::to_string(i) + "." + name, shape);
  }
  spill(dir / "a.pt", file_of({megatron}));
  ForeignOptions options;
  for (const std::optional<std::string>& prefix : {std::optional<std::string>(), std::optional<std::string>("model")}) {
    options.prefix = prefix;
    std::vector<std::string> wanted, found;
    for (const Mapped& tensor : tensors_of(model, Layout::separate)) wanted.push_back(tensor.name);
    for (const auto& entry : foreign_tensors(dir / "a.pt", model, options)) found.push_back(entry.first);
    EXPECT_THAT(found, testing::UnorderedElementsAreArray(wanted));
  }
}

TEST(Copies, NamesOfTransformersAreNotTitans) {
  for (const bool tied : {false, true}) {
    const nn::ModelConfig model = tiny("llama", tied);
    EXPECT_TRUE(find_copies(names_behind({"", "ema."}, model), Naming::titan, model).copies.empty());
  }
}

TEST(ForeignTensors, OnlyAWholeFirstPartOfANameIsOfTheOptimizer) {
  for (const char* name : {"optim.x", "optimizer.state.x", "optimizer_state_dict.x", "optimizer_0.x", "optimizer1.x",
                           "chained_0.x", "common.x", "rng_state/shard_0", "optimizer"})
    EXPECT_FALSE(is_of_model(name)) << name;
  for (const char* name :
       {"optimized_model.x", "commonsense.x", "model.optimizer.x", "dataloader_model.x", "0.x", "123"})
    EXPECT_TRUE(is_of_model(name)) << name;
}

TEST(Copies, WrappersOfModulesAreLeftOut) {
  EXPECT_EQ(without_wrappers("_orig_mod.layers.0._checkpoint_wrapped_module._fsdp_wrapped_module.mlp.weight"),
            "layers.0.mlp.weight");
  EXPECT_EQ(without_wrappers("my_orig_mod.weight"), "my_orig_mod.weight");
}

}  // namespace
}  // namespace ms::hf
