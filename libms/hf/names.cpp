#include "hf/names.h"

#include <fmt/format.h>

#include <utility>

namespace ms::hf {
namespace {

class List {
 public:
  explicit List(std::string prefix) : prefix_(std::move(prefix)) {}

  void matrix(const std::string& theirs, const std::string& ours, std::int64_t rows, std::int64_t cols) {
    mapped_.push_back({prefix_ + theirs, {rows, cols}, {{ours, rows, cols}}});
  }
  void vector(const std::string& theirs, const std::string& ours, std::int64_t size) {
    mapped_.push_back({prefix_ + theirs, {size}, {{ours, 1, size}}});
  }
  // GPT-2's Conv1D: weights are [in, out].
  void conv(const std::string& theirs, const std::vector<std::string>& ours, std::int64_t out, std::int64_t in) {
    Mapped weight{prefix_ + theirs + ".weight", {in, 0}, {}, true}, bias{prefix_ + theirs + ".bias", {0}, {}};
    for (const std::string& part : ours) {
      weight.parts.push_back({part + ".weight", out, in});
      bias.parts.push_back({part + ".bias", 1, out});
    }
    weight.shape[1] = bias.shape[0] = out * static_cast<std::int64_t>(ours.size());
    mapped_.push_back(std::move(weight));
    mapped_.push_back(std::move(bias));
  }
  void head(const nn::ModelConfig& model) {
    if (model.tied_embeddings) return;
    mapped_.push_back({kHeadName, {model.vocab, model.hidden}, {{"head.weight", model.vocab, model.hidden}}});
  }
  std::vector<Mapped> finish() { return std::move(mapped_); }

 private:
  std::string prefix_;
  std::vector<Mapped> mapped_;
};

std::vector<Mapped> gpt2(const nn::ModelConfig& model) {
  List list(prefix_of(model));
  const auto norm = [&](const std::string& theirs, const std::string& ours) {
    list.vector(theirs + ".weight", ours + ".weight", model.hidden);
    list.vector(theirs + ".bias", ours + ".bias", model.hidden);
  };
  list.matrix("wte.weight", "embed.tokens.weight", model.vocab, model.hidden);
  list.matrix("wpe.weight", "embed.positions.weight", model.seq, model.hidden);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const std::string theirs = fmt::format("h.{}.", i), ours = fmt::format("layers.{}.", i);
    norm(theirs + "ln_1", ours + "norm1");
    list.conv(theirs + "attn.c_attn", {ours + "attn.q", ours + "attn.k", ours + "attn.v"}, model.hidden, model.hidden);
    list.conv(theirs + "attn.c_proj", {ours + "attn.out"}, model.hidden, model.hidden);
    norm(theirs + "ln_2", ours + "norm2");
    list.conv(theirs + "mlp.c_fc", {ours + "mlp.up"}, model.ffn(), model.hidden);
    list.conv(theirs + "mlp.c_proj", {ours + "mlp.down"}, model.hidden, model.ffn());
  }
  norm("ln_f", "final_norm");
  list.head(model);
  return list.finish();
}

std::vector<Mapped> llama(const nn::ModelConfig& model) {
  List list(prefix_of(model));
  const std::int64_t hidden = model.hidden, kv = model.kv() * model.head_dim();
  list.matrix("embed_tokens.weight", "embed.tokens.weight", model.vocab, hidden);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const std::string theirs = fmt::format("layers.{}.", i), ours = fmt::format("layers.{}.", i);
    list.vector(theirs + "input_layernorm.weight", ours + "norm1.weight", hidden);
    list.matrix(theirs + "self_attn.q_proj.weight", ours + "attn.q.weight", hidden, hidden);
    list.matrix(theirs + "self_attn.k_proj.weight", ours + "attn.k.weight", kv, hidden);
    list.matrix(theirs + "self_attn.v_proj.weight", ours + "attn.v.weight", kv, hidden);
    list.matrix(theirs + "self_attn.o_proj.weight", ours + "attn.out.weight", hidden, hidden);
    list.vector(theirs + "post_attention_layernorm.weight", ours + "norm2.weight", hidden);
    list.matrix(theirs + "mlp.gate_proj.weight", ours + "mlp.gate.weight", model.ffn(), hidden);
    list.matrix(theirs + "mlp.up_proj.weight", ours + "mlp.up.weight", model.ffn(), hidden);
    list.matrix(theirs + "mlp.down_proj.weight", ours + "mlp.down.weight", hidden, model.ffn());
  }
  list.vector("norm.weight", "final_norm.weight", hidden);
  list.head(model);
  return list.finish();
}

}  // namespace

std::vector<Mapped> tensors_of(const nn::ModelConfig& model) { return model.is_gpt() ? gpt2(model) : llama(model); }

std::string prefix_of(const nn::ModelConfig& model) { return model.is_gpt() ? "transformer." : "model."; }

std::string embedding_name(const nn::ModelConfig& model) {
  return prefix_of(model) + (model.is_gpt() ? "wte.weight" : "embed_tokens.weight");
}

std::set<std::string> buffers_of(const nn::ModelConfig& model) {
  std::set<std::string> names;
  const std::string prefix = prefix_of(model);
  if (!model.is_gpt()) names.insert(prefix + "rotary_emb.inv_freq");
  for (std::int64_t i = 0; i < model.layers; ++i) {
    if (model.is_gpt()) {
      names.insert(fmt::format("{}h.{}.attn.bias", prefix, i));
      names.insert(fmt::format("{}h.{}.attn.masked_bias", prefix, i));
    } else {
      names.insert(fmt::format("{}layers.{}.self_attn.rotary_emb.inv_freq", prefix, i));
    }
  }
  return names;
}

}  // namespace ms::hf
