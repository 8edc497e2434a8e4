// Prints our logits of a checkpoint as JSON, for hf_peer.sh:  hf_peer CHECKPOINT TOKEN...
#include <fmt/ranges.h>

#include <charconv>
#include <cstdio>
#include <cstring>

#include "hf_logits.h"

namespace {

using namespace ms;  // NOLINT: a main

nn::ModelConfig model_of(const ckpt::Manifest& manifest) {
  // Only [model] matters here: the rest of a configuration is not ours to understand.
  const std::size_t begin = manifest.config.find("[model]");
  if (begin == std::string::npos) throw user_error("hf_peer", "the checkpoint's configuration has no [model]");
  const std::string section = manifest.config.substr(begin, manifest.config.find("\n[", begin) - begin);
  nn::ModelConfig model;
  ConfigSchema schema;
  schema.section("model", "The model.", model, nn::kModelFields);
  schema.load_text(section, "the checkpoint's configuration");
  schema.throw_if_problems();
  return model;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3) throw user_error("hf_peer", "usage: hf_peer CHECKPOINT TOKEN...");
    std::vector<std::int32_t> tokens;
    for (int i = 2; i < argc; ++i) {
      std::int32_t token = 0;
      std::from_chars(argv[i], argv[i] + std::strlen(argv[i]), token);
      tokens.push_back(token);
    }
    const ckpt::Parameters from(argv[1]);
    nn::ModelConfig model = model_of(from.manifest());
    if (model.is_gpt() && model.seq != static_cast<std::int64_t>(tokens.size())) {
      throw user_error("hf_peer", fmt::format("give {} tokens", model.seq));
    }
    model.seq = static_cast<std::int64_t>(tokens.size());
    fmt::print("[{:.9g}]\n", fmt::join(logits_of(from, model, tokens), ", "));
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "hf_peer: {}\n", error.what());
    return 1;
  }
}
