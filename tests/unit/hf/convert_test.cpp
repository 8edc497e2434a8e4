// Export and import undo each other, bit by bit, for both families, however the checkpoint is cut and the export is
// sharded; elements lie where transformers looks for them; and what is refused leaves nothing behind.
#include "hf/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/rng.h"
#include "ckpt/directory.h"
#include "hf/companions.h"
#include "hf/safetensors.h"
#include "nn/params.h"
#include "support.h"

namespace ms::hf {
namespace {

using ckpt::Parameters;
using ckpt::Piece;
using ckpt::State;
using tensor::DType;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

ckpt::Manifest manifest_of(int step) {
  ckpt::Manifest manifest;
  manifest.step = step;
  manifest.run = "0123456789abcdef";
  manifest.created = "2026-01-31T12:00:00Z";
  manifest.version = "1";
  manifest.config = "";
  manifest.dtype = "fp32";
  return manifest;
}

float value_of(const std::string& name, std::int64_t element) {
  return normal(3, rng_key(name), static_cast<std::uint64_t>(element));
}

void fill_piece(const Piece& piece, std::span<std::byte> to) {
  const std::int64_t first = piece.slice.row0 * piece.slice.cols;
  for (std::int64_t i = 0; i < piece.slice.size(); ++i) {
    const float value = value_of(piece.slice.name, first + i);
    const auto at = static_cast<std::size_t>(i * tensor::size_of(piece.dtype));
    if (piece.state != State::master && piece.dtype == DType::bf16) {
      convert(Dtype::f32, std::as_bytes(std::span(&value, 1)), DType::bf16, to.subspan(at, 2));
    } else {
      std::memcpy(to.data() + at, &value, 4);
    }
  }
}

// A checkpoint of the model as two ranks might have left it: matrices cut by rows over two files; bf16 with masters.
std::string make_checkpoint(const nn::ModelConfig& model, DType dtype, const std::string& dir) {
  std::vector<ckpt::OfflineFile> files(2);
  const mesh::Mesh one{1, 1, 1};
  const auto add = [&](std::size_t file, State state, DType type, const ckpt::Slice& slice) {
    if (slice.size() > 0) files[file].pieces.push_back({state, type, slice});
  };
  for (const nn::SpanSpec& span : nn::chunk_spans(model, one, 0, nn::chunk_part(model, one, 0, 0, 1), 0)) {
    for (const nn::ParamSpec& param : span.params) {
      ckpt::Slice above = ckpt::whole(param.shard.name, param.shard.global_rows, param.shard.global_cols),
                  below = above;
      above.rows = above.global_rows / 2, below.row0 = above.rows, below.rows = below.global_rows - above.rows;
      above.elements = {0, above.rows * above.cols}, below.elements = {0, below.rows * below.cols};
      for (const auto& [state, type] : {std::pair{State::weight, dtype}, {State::master, DType::f32}}) {
        if (state == State::master && dtype == DType::f32) continue;
        add(0, state, type, above);
        add(1, state, type, below);
      }
    }
  }
  for (const std::string& name : router_biases(model))
    add(0, State::weight, DType::f32, ckpt::whole(name, 1, model.experts));
  for (ckpt::OfflineFile& file : files) {
    file.fill = [&file](std::size_t i, std::span<std::byte> to) { fill_piece(file.pieces[i], to); };
  }
  ckpt::Manifest manifest = manifest_of(30);
  manifest.dtype = dtype == DType::bf16 ? "bf16" : "fp32";
  manifest.has_optimizer = false;
  return ckpt::write_checkpoint(dir, manifest, files);
}

std::map<std::string, std::vector<std::byte>> weights_of(const Parameters& from) {
  std::map<std::string, std::vector<std::byte>> weights;
  for (const Parameters::Info& info : from.list()) {
    std::vector<std::byte>& bytes = weights[info.name];
    bytes.resize(static_cast<std::size_t>(info.rows * info.cols * tensor::size_of(info.weight_dtype)));
    from.read(State::weight, info.name, bytes);
  }
  return weights;
}

float float_at(const TensorView& view, std::size_t index) {
  float value;
  view.read(index * 4, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

// A checkpoint is HDF5: without it there is nothing to convert.
class Checkpoints : public testing::Test {
 protected:
  void SetUp() override {
    const Error error = thrown_by([&] { ckpt::make_skeleton(dir / "no/such", {}); });
    if (error.blame() == Blame::user) GTEST_SKIP() << "built without HDF5";
  }
  const TempDir dir;
};
class RoundTrip : public Checkpoints {};
class Export : public Checkpoints {};

TEST_F(Export, TakesTokenizerAndTokensAlong) {
  const TempDir at;
  const nn::ModelConfig model = tiny("llama", true);
  make_directories(at / "theirs");
  spill(at / "theirs/config.json", R"({"bos_token_id": 1, "eos_token_id": [2, 3], "model_type": "other"})");
  spill(at / "theirs/tokenizer.json", "{}");
  spill(at / "theirs/generation_config.json", R"({"temperature": 0.6})");
  spill(at / "theirs/notes.txt", "not of the model");
  const std::string checkpoint = make_checkpoint(model, DType::f32, at / "ckpt");
  const std::string beside = companions_beside(checkpoint);
  EXPECT_EQ(beside, at / "ckpt/hf");
  EXPECT_EQ(companions_beside(checkpoint + "/"), beside);
  copy_companions(at / "theirs", beside);
  EXPECT_THAT(names_in(beside),
              testing::UnorderedElementsAre("config.json", "tokenizer.json", "generation_config.json"));

  export_model(Parameters(checkpoint), model, at / "out", {.companions = beside});
  EXPECT_THAT(names_in(at / "out"), testing::UnorderedElementsAre("config.json", "tokenizer.json",
                                                                  "generation_config.json", "model.safetensors"));
  const auto config = nlohmann::json::parse(slurp(at / "out/config.json"));
  EXPECT_EQ(config["model_type"], "llama") << "the model's own";
  EXPECT_EQ(config["bos_token_id"], 1);
  EXPECT_EQ(config["eos_token_id"], (std::vector<int>{2, 3}));
  spill(beside + "/config.json", R"({"eos_token_id": null})");
  const ExportOptions lacking{.companions = beside, .files = {{"vocab.json", "ours"}}, .end_of_document = 7};
  export_model(Parameters(checkpoint), model, at / "bare", lacking);
  EXPECT_EQ(slurp(at / "bare/vocab.json"), "ours");
  EXPECT_EQ(nlohmann::json::parse(slurp(at / "bare/config.json"))["eos_token_id"], 7);
}

TEST_F(RoundTrip, IsTheIdentity) {
  for (const char* family : kFamilies) {
    for (const bool tied : {true, false}) {
      for (const auto& [dtype, shard] : {std::pair{DType::f32, std::int64_t{1} << 40}, {DType::bf16, 3000}}) {
        SCOPED_TRACE(fmt::format("{} tied {} {} shards of {}", family, tied, tensor::to_string(dtype), shard));
        const TempDir at;
        const nn::ModelConfig model = tiny(family, tied);
        const Parameters before(make_checkpoint(model, dtype, at / "a"));
        ExportOptions options;
        options.max_shard_bytes = shard;
        std::int64_t reported = 0;
        options.progress = [&](std::int64_t bytes) { reported = bytes; };
        export_model(before, model, at / "hf", options);
        EXPECT_EQ(reported, export_bytes(before, options));
        EXPECT_EQ(std::filesystem::exists(at / "hf/model.safetensors"), shard > 100000);

        const nn::ModelConfig read = read_model(at / "hf");
        const Parameters after(import_model(at / "hf", read, manifest_of(99), at / "b"));
        EXPECT_EQ(weights_of(after), weights_of(before));
        EXPECT_EQ(after.manifest().step, 0);
        EXPECT_FALSE(after.manifest().has_optimizer);
        EXPECT_EQ(after.manifest().dtype, dtype == DType::bf16 ? "bf16" : "fp32");
        EXPECT_EQ(after.manifest().run, "0123456789abcdef");
      }
    }
  }
}

TEST_F(Export, PutsGpt2ElementsWhereTransformersLooks) {
  const nn::ModelConfig model = tiny("gpt", true);
  export_model(Parameters(make_checkpoint(model, DType::f32, dir / "a")), model, dir / "hf", {});
  const TensorSet set(dir / "hf");
  const std::int64_t h = model.hidden;
  const TensorView& packed = set.tensors().at("transformer.h.1.attn.c_attn.weight");
  ASSERT_THAT(packed.shape, ElementsAre(h, 3 * h));
  const char* ours[] = {"layers.1.attn.q", "layers.1.attn.k", "layers.1.attn.v"};
  for (std::int64_t in = 0; in < h; ++in) {
    for (std::int64_t out = 0; out < 3 * h; ++out) {
      ASSERT_EQ(float_at(packed, static_cast<std::size_t>(in * 3 * h + out)),
                value_of(std::string(ours[out / h]) + ".weight", out % h * h + in));
    }
  }
  const TensorView& bias = set.tensors().at("transformer.h.1.attn.c_attn.bias");
  EXPECT_EQ(float_at(bias, static_cast<std::size_t>(2 * h + 3)), value_of("layers.1.attn.v.bias", 3));
  const TensorView& up = set.tensors().at("transformer.h.0.mlp.c_fc.weight");
  ASSERT_THAT(up.shape, ElementsAre(h, 4 * h));
  EXPECT_EQ(float_at(up, static_cast<std::size_t>(2 * 4 * h + 5)), value_of("layers.0.mlp.up.weight", 5 * h + 2));
}

TEST_F(Export, PutsLlamaElementsWhereTransformersLooks) {
  const nn::ModelConfig model = tiny("llama", false);
  export_model(Parameters(make_checkpoint(model, DType::f32, dir / "a")), model, dir / "hf", {});
  const TensorSet set(dir / "hf");
  EXPECT_EQ(float_at(set.tensors().at("model.layers.1.self_attn.k_proj.weight"), 17),
            value_of("layers.1.attn.k.weight", 17));
  EXPECT_EQ(float_at(set.tensors().at("lm_head.weight"), 9), value_of("head.weight", 9));
}

TEST_F(Export, ConvertsFromTheMaster) {
  const nn::ModelConfig model = tiny("llama", true);
  const Parameters from(make_checkpoint(model, DType::bf16, dir / "a"));
  export_model(from, model, dir / "wide", {.dtype = DType::f32, .progress = {}});
  EXPECT_EQ(float_at(TensorSet(dir / "wide").tensors().at("model.norm.weight"), 5), value_of("final_norm.weight", 5));
  const auto config = nlohmann::json::parse(slurp(dir / "wide/config.json"));
  EXPECT_EQ(config["torch_dtype"], "float32");

  // f32 rounded on the way out is what a bf16 run holds.
  export_model(Parameters(make_checkpoint(model, DType::f32, dir / "b")), model, dir / "narrow",
               {.dtype = DType::bf16, .progress = {}});
  export_model(from, model, dir / "stored", {});
  EXPECT_EQ(slurp(dir / "narrow/model.safetensors"), slurp(dir / "stored/model.safetensors"));
  EXPECT_EQ(slurp(dir / "narrow/config.json"), slurp(dir / "stored/config.json"));
}

TEST_F(Export, TakesAnEmptyOrANewDirectoryAndRefusesAnother) {
  const nn::ModelConfig model = tiny("gpt", true);
  const Parameters from(make_checkpoint(model, DType::f32, dir / "a"));
  std::filesystem::create_directory(dir / "empty");
  export_model(from, model, dir / "empty/", {});
  EXPECT_THAT(names_in(dir / "empty"), ElementsAre("config.json", "model.safetensors"));
  const auto refused = [&](const std::string& out) {
    const Error error = thrown_by([&] { export_model(from, model, out, {}); });
    EXPECT_EQ(error.kind(), "hf.export");
    EXPECT_EQ(error.blame(), Blame::user);
    return error.message();
  };
  EXPECT_THAT(refused(dir / "empty"), HasSubstr("is not empty"));
  spill(dir / "file", "x");
  EXPECT_THAT(refused(dir / "file"), HasSubstr("is not a directory"));
  EXPECT_THAT(refused(""), HasSubstr("cannot write to ''"));
  export_model(from, model, dir / "not/there/yet", {});
  EXPECT_THAT(names_in(dir / "not/there/yet"), ElementsAre("config.json", "model.safetensors"));
  EXPECT_THAT(names_in(dir.path()), ElementsAre("a", "empty", "file", "not"));
}

TEST_F(Export, LeavesNothingBehindWhereItFails) {
  const nn::ModelConfig model = tiny("gpt", true);
  const Parameters from(make_checkpoint(model, DType::f32, dir / "a"));
  ExportOptions options;
  int calls = 0;
  options.progress = [&](std::int64_t) {
    // Half way there is no directory of that name yet.
    EXPECT_FALSE(std::filesystem::exists(dir / "out"));
    if (++calls == 5) throw Error("test", Blame::storage, "the disk is full");
  };
  EXPECT_EQ(thrown_by([&] { export_model(from, model, dir / "out", options); }).kind(), "test");
  EXPECT_THAT(names_in(dir.path()), ElementsAre("a"));
}

TEST_F(Export, RefusesACheckpointOfAnotherModelWithAllProblems) {
  nn::ModelConfig model = tiny("llama", false);
  const Parameters from(make_checkpoint(model, DType::f32, dir / "a"));
  model.layers = 3;
  model.vocab = 12;
  model.tied_embeddings = true;
  const Error error = thrown_by([&] { export_model(from, model, dir / "out", {}); });
  EXPECT_EQ(error.kind(), "hf.export");
  EXPECT_THAT(error.message(), HasSubstr("layers.2.attn.q.weight is missing"));
  EXPECT_THAT(error.message(), HasSubstr("embed.tokens.weight is 11 x 16, expected 12 x 16"));
  EXPECT_THAT(error.message(), HasSubstr("head.weight is not part of the model"));
  EXPECT_THAT(names_in(dir.path()), ElementsAre("a"));
}

// A model's directory that a case changes: tensors are taken by name from a sound export.
class Import : public Checkpoints {
 protected:
  using Tensors = std::map<std::string, std::pair<TensorInfo, std::string>>;
  static Tensors tensors_in(const std::string& hf_dir) {
    Tensors tensors;
    const TensorSet set(hf_dir);
    for (const auto& [name, view] : set.tensors()) {
      const std::vector<std::byte> bytes = view.read();
      tensors[name] = {{name, view.dtype, view.shape}, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
    }
    return tensors;
  }
  void write(const Tensors& tensors, const std::string& hf_dir) {
    std::filesystem::create_directory(hf_dir);
    std::vector<TensorInfo> infos;
    for (const auto& [name, tensor] : tensors) {
      infos.push_back(tensor.first);
      infos.back().name = name;
    }
    TensorFileWriter writer(hf_dir + "/model.safetensors", infos);
    for (const auto& [name, tensor] : tensors) writer.write(std::as_bytes(std::span(tensor.second)));
    writer.close();
  }
  Tensors exported(const nn::ModelConfig& model, DType dtype = DType::f32) {
    export_model(Parameters(make_checkpoint(model, dtype, dir / "a")), model, dir / "hf", {});
    return tensors_in(dir / "hf");
  }
  std::string refused(const Tensors& tensors, const nn::ModelConfig& model) {
    write(tensors, dir / "changed");
    const Error error = thrown_by([&] { import_model(dir / "changed", model, manifest_of(0), dir / "b"); });
    EXPECT_EQ(error.kind(), "hf.import");
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_FALSE(std::filesystem::exists(dir / "b"));
    return error.message() + error.hint();
  }
};

TEST_F(Import, TakesAModelSavedWithoutItsHead) {
  const nn::ModelConfig model = tiny("gpt", true);
  Tensors bare;
  for (const auto& [name, tensor] : exported(model)) bare[name.substr(std::string("transformer.").size())] = tensor;
  bare["h.0.attn.bias"] = {{"", Dtype::f32, {1, 1, 2, 2}}, std::string(16, '\1')};
  write(bare, dir / "bare");
  const Parameters after(import_model(dir / "bare", model, manifest_of(0), dir / "b"));
  EXPECT_EQ(weights_of(after), weights_of(Parameters(dir / "a/step-00000030")));
}

TEST_F(Import, TakesATiedHeadThatIsTheEmbedding) {
  const nn::ModelConfig model = tiny("llama", true);
  Tensors tensors = exported(model);
  tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight");
  write(tensors, dir / "same");
  EXPECT_THAT(Parameters(import_model(dir / "same", model, manifest_of(0), dir / "c")).list(),
              SizeIs(tensors.size() - 1));
  tensors.erase("model.embed_tokens.weight");
  write(tensors, dir / "head");
  EXPECT_EQ(weights_of(Parameters(import_model(dir / "head", model, manifest_of(0), dir / "d"))),
            weights_of(Parameters(dir / "a/step-00000030")));
  tensors["model.embed_tokens.weight"] = tensors.at("lm_head.weight");
  tensors["lm_head.weight"].second[3] ^= 1;
  EXPECT_THAT(refused(tensors, model), HasSubstr("but tie_word_embeddings is true"));
}

TEST_F(Import, WidensHalvesAndMixedTypes) {
  const nn::ModelConfig model = tiny("llama", true);
  Tensors tensors = exported(model, DType::bf16);
  auto& [info, bytes] = tensors.at("model.norm.weight");
  info.dtype = Dtype::f16;
  for (std::size_t i = 0; i < bytes.size(); i += 2) bytes[i] = '\0', bytes[i + 1] = '\x3E';  // 1.5
  write(tensors, dir / "mixed");
  const Parameters after(import_model(dir / "mixed", model, manifest_of(0), dir / "b"));
  EXPECT_EQ(after.manifest().dtype, "fp32");
  EXPECT_THAT(after.read_f32("final_norm.weight"), testing::Each(1.5F));
  // What was bf16 is the same numbers, wider.
  for (const Parameters::Info& info_of : after.list()) EXPECT_EQ(info_of.weight_dtype, DType::f32);
  const Parameters before(dir / "a/step-00000030");
  std::vector<std::byte> narrow(static_cast<std::size_t>(model.vocab * model.hidden * 2));
  before.read(State::weight, "embed.tokens.weight", narrow);
  std::vector<float> wide(static_cast<std::size_t>(model.vocab * model.hidden));
  convert(Dtype::bf16, narrow, DType::f32, std::as_writable_bytes(std::span(wide)));
  EXPECT_EQ(after.read_f32("embed.tokens.weight"), wide);
}

TEST_F(Import, RefusesAllThatDoesNotFitAtOnce) {
  const nn::ModelConfig model = tiny("gpt", false);
  Tensors tensors = exported(model);
  tensors.erase("lm_head.weight");
  tensors.erase("transformer.h.1.ln_2.bias");
  tensors["score.weight"] = tensors.at("transformer.ln_f.bias");
  tensors["transformer.h.7.attn.bias"] = tensors.at("transformer.ln_f.bias");
  tensors.at("transformer.wpe.weight").first.shape = {model.hidden, model.seq};
  const std::string message = refused(tensors, model);
  for (const char* part :
       {"'lm_head.weight' is missing", "tie_word_embeddings = true", "'transformer.h.1.ln_2.bias' is missing",
        "'score.weight' is not part of the model", "'transformer.h.7.attn.bias' is not part of the model",
        "'transformer.wpe.weight' is [12, 7], expected [7, 12]"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
  EXPECT_THAT(message, Not(HasSubstr("more")));
}

TEST_F(Import, RefusesWeightsThatAreNotFinite) {
  const nn::ModelConfig model = tiny("llama", true);
  Tensors tensors = exported(model);
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::memcpy(tensors["model.norm.weight"].second.data() + 8, &wrong, sizeof wrong);
    std::filesystem::remove_all(dir / "broken");
    write(tensors, dir / "broken");
    const Error error = thrown_by([&] { import_model(dir / "broken", model, manifest_of(0), dir / "b"); });
    EXPECT_EQ(error.kind(), "hf.import");
    EXPECT_THAT(error.message(), HasSubstr("'model.norm.weight' holds NaN or infinite weights"));
    EXPECT_FALSE(std::filesystem::exists(dir / "b"));
  }
}

TEST_F(Import, RefusesOtherTypes) {
  nn::ModelConfig model = tiny("llama", true);
  Tensors tensors = exported(model);
  write(tensors, dir / "i32");
  std::string file = slurp(dir / "i32/model.safetensors");
  const std::size_t at = file.find("F32", file.find("model.norm.weight"));
  spill(dir / "i32/model.safetensors", file.replace(at, 3, "I32"));
  const Error error = thrown_by([&] { import_model(dir / "i32", model, manifest_of(0), dir / "b"); });
  EXPECT_THAT(error.message(), HasSubstr("'model.norm.weight' is I32, expected F32, BF16 or F16"));
}

}  // namespace
}  // namespace ms::hf
