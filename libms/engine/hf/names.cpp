#include "hf/names.h"

#include <fmt/format.h>

#include <utility>

#include "nn/params.h"

namespace ms::hf {
namespace {

class List {
 public:
  explicit List(std::string prefix) : prefix_(std::move(prefix)) {}

  void matrix(const std::string& theirs, const std::string& ours, std::int64_t rows, std::int64_t cols) {
    mapped_.push_back({prefix_ + theirs, {rows, cols}, {{ours, rows, cols}}});
  }
  // Several of our matrices as one, by rows.
  void joined(const std::string& theirs, std::vector<Part> parts, std::int64_t blocks = 1) {
    Mapped mapped{prefix_ + theirs, {0, parts.front().cols}, std::move(parts), false, blocks};
    for (const Part& part : mapped.parts) mapped.shape[0] += part.rows;
    mapped_.push_back(std::move(mapped));
  }
  void vectors(const std::string& theirs, std::vector<Part> parts, std::int64_t blocks) {
    Mapped mapped{prefix_ + theirs, {0}, std::move(parts), false, blocks};
    for (const Part& part : mapped.parts) mapped.shape[0] += part.cols;
    mapped_.push_back(std::move(mapped));
  }
  void vector(const std::string& theirs, const std::string& ours, std::int64_t size) {
    mapped_.push_back({prefix_ + theirs, {size}, {{ours, 1, size}}});
  }
  void f32_vector(const std::string& theirs, const std::string& ours, std::int64_t size) {
    vector(theirs, ours, size);
    mapped_.back().is_f32 = true;
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
    mapped_.push_back({head_name(model), {model.vocab, model.hidden}, {{"head.weight", model.vocab, model.hidden}}});
  }
  std::vector<Mapped> finish() { return std::move(mapped_); }

 private:
  std::string prefix_;
  std::vector<Mapped> mapped_;
};

std::vector<Mapped> neox(const nn::ModelConfig& model) {
  List list(prefix_of(model));
  const auto linear = [&](const std::string& theirs, const std::vector<std::string>& ours, std::int64_t out,
                          std::int64_t in) {
    std::vector<Part> weights, biases;
    for (const std::string& part : ours) {
      weights.push_back({part + ".weight", out, in});
      biases.push_back({part + ".bias", 1, out});
    }
    const std::int64_t blocks = ours.size() == 1 ? 1 : model.heads;
    list.joined(theirs + ".weight", std::move(weights), blocks);
    list.vectors(theirs + ".bias", std::move(biases), blocks);
  };
  const auto norm = [&](const std::string& theirs, const std::string& ours) {
    list.vector(theirs + ".weight", ours + ".weight", model.hidden);
    list.vector(theirs + ".bias", ours + ".bias", model.hidden);
  };
  list.matrix("embed_in.weight", "embed.tokens.weight", model.vocab, model.hidden);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const std::string theirs = fmt::format("layers.{}.", i), ours = fmt::format("layers.{}.", i);
    norm(theirs + "input_layernorm", ours + "norm1");
    linear(theirs + "attention.query_key_value", {ours + "attn.q", ours + "attn.k", ours + "attn.v"}, model.hidden,
           model.hidden);
    linear(theirs + "attention.dense", {ours + "attn.out"}, model.hidden, model.hidden);
    norm(theirs + "post_attention_layernorm", ours + "norm2");
    linear(theirs + "mlp.dense_h_to_4h", {ours + "mlp.up"}, model.ffn(), model.hidden);
    linear(theirs + "mlp.dense_4h_to_h", {ours + "mlp.down"}, model.hidden, model.ffn());
  }
  norm("final_layer_norm", "final_norm");
  list.head(model);
  return list.finish();
}

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

// The names of Mixtral, or those of Qwen's models and of DeepSeek's, which have norms of queries and keys or shared
// experts.
void experts(List& list, const nn::ModelConfig& model, const std::string& theirs, const std::string& ours) {
  struct Names {
    const char *mlp, *gate, *up, *down;
  };
  const Names names = model.qk_norm || model.shared_experts > 0 ? Names{"mlp.", "gate_proj", "up_proj", "down_proj"}
                                                                : Names{"block_sparse_moe.", "w1", "w3", "w2"};
  list.matrix(theirs + names.mlp + "gate.weight", ours + "mlp.router.weight", model.experts, model.hidden);
  for (std::int64_t e = 0; e < model.experts; ++e) {
    const std::string there = fmt::format("{}{}experts.{}.", theirs, names.mlp, e);
    const std::string here = nn::expert_prefix(ours + "mlp.", e);
    const auto matrix = [&](const char* name, const char* own, std::int64_t out, std::int64_t in) {
      list.matrix(there + name + ".weight", here + own + ".weight", out, in);
    };
    matrix(names.gate, "gate", model.expert_ffn(), model.hidden);
    matrix(names.up, "up", model.expert_ffn(), model.hidden);
    matrix(names.down, "down", model.hidden, model.expert_ffn());
  }
  if (model.router_bias)
    list.f32_vector(theirs + names.mlp + "gate.e_score_correction_bias", ours + "mlp.router.bias", model.experts);
  if (model.shared_experts == 0) return;
  const std::string there = theirs + (model.shared_expert_gate ? "mlp.shared_expert" : "mlp.shared_experts"),
                    here = ours + "mlp.shared.";
  list.matrix(there + ".gate_proj.weight", here + "gate.weight", model.shared_ffn(), model.hidden);
  list.matrix(there + ".up_proj.weight", here + "up.weight", model.shared_ffn(), model.hidden);
  list.matrix(there + ".down_proj.weight", here + "down.weight", model.hidden, model.shared_ffn());
  if (model.shared_expert_gate) list.matrix(there + "_gate.weight", here + "router.weight", 1, model.hidden);
}

std::vector<Mapped> llama(const nn::ModelConfig& model, Layout layout) {
  List list(prefix_of(model));
  const std::int64_t hidden = model.hidden, q = model.heads * model.head_dim(), kv = model.kv() * model.head_dim();
  // A matrix, and its bias if it has one.
  const auto linear = [&](const std::string& theirs, const std::string& ours, std::int64_t out, std::int64_t in,
                          bool bias) {
    list.matrix(theirs + ".weight", ours + ".weight", out, in);
    if (bias) list.vector(theirs + ".bias", ours + ".bias", out);
  };
  list.matrix("embed_tokens.weight", "embed.tokens.weight", model.vocab, hidden);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const std::string theirs = fmt::format("layers.{}.", i), ours = fmt::format("layers.{}.", i);
    list.vector(theirs + "input_layernorm.weight", ours + "norm1.weight", hidden);
    if (layout == Layout::joined) {
      list.joined(theirs + "self_attn.qkv_proj.weight", {{ours + "attn.q.weight", q, hidden},
                                                         {ours + "attn.k.weight", kv, hidden},
                                                         {ours + "attn.v.weight", kv, hidden}});
    } else {
      linear(theirs + "self_attn.q_proj", ours + "attn.q", q, hidden, model.qkv_bias);
      linear(theirs + "self_attn.k_proj", ours + "attn.k", kv, hidden, model.qkv_bias);
      linear(theirs + "self_attn.v_proj", ours + "attn.v", kv, hidden, model.qkv_bias);
    }
    if (model.qk_norm) {
      list.vector(theirs + "self_attn.q_norm.weight", ours + "attn.q_norm.weight", model.head_dim());
      list.vector(theirs + "self_attn.k_norm.weight", ours + "attn.k_norm.weight", model.head_dim());
    }
    linear(theirs + "self_attn.o_proj", ours + "attn.out", hidden, q, model.out_bias);
    list.vector(theirs + "post_attention_layernorm.weight", ours + "norm2.weight", hidden);
    if (model.has_experts(i)) {
      experts(list, model, theirs, ours);
      continue;
    }
    if (layout == Layout::joined) {
      list.joined(theirs + "mlp.gate_up_proj.weight",
                  {{ours + "mlp.gate.weight", model.ffn(), hidden}, {ours + "mlp.up.weight", model.ffn(), hidden}});
    } else {
      linear(theirs + "mlp.gate_proj", ours + "mlp.gate", model.ffn(), hidden, model.mlp_bias);
      linear(theirs + "mlp.up_proj", ours + "mlp.up", model.ffn(), hidden, model.mlp_bias);
    }
    linear(theirs + "mlp.down_proj", ours + "mlp.down", hidden, model.ffn(), model.mlp_bias);
  }
  list.vector("norm.weight", "final_norm.weight", hidden);
  list.head(model);
  return list.finish();
}

}  // namespace

Layout export_layout(const nn::ModelConfig& model) {
  return model.gated() && model.rotary() != model.head_dim() ? Layout::joined : Layout::separate;
}

std::vector<Mapped> tensors_of(const nn::ModelConfig& model, Layout layout) {
  return model.is_gpt() ? gpt2(model) : model.is_neox() ? neox(model) : llama(model, layout);
}

std::string prefix_of(const nn::ModelConfig& model) {
  return model.is_gpt() ? "transformer." : model.is_neox() ? "gpt_neox." : "model.";
}

std::string head_name(const nn::ModelConfig& model) { return model.is_neox() ? "embed_out.weight" : "lm_head.weight"; }

std::string embedding_name(const nn::ModelConfig& model) {
  return prefix_of(model) + (model.is_gpt()    ? "wte.weight"
                             : model.is_neox() ? "embed_in.weight"
                                               : "embed_tokens.weight");
}

std::set<std::string> buffers_of(const nn::ModelConfig& model) {
  std::set<std::string> names;
  const std::string prefix = prefix_of(model);
  if (!model.is_gpt()) names.insert(prefix + "rotary_emb.inv_freq");
  for (std::int64_t i = 0; i < model.layers; ++i) {
    if (model.is_gpt()) {
      names.insert(fmt::format("{}h.{}.attn.bias", prefix, i));
      names.insert(fmt::format("{}h.{}.attn.masked_bias", prefix, i));
    } else if (model.is_neox()) {
      for (const char* buffer : {"bias", "masked_bias", "rotary_emb.inv_freq"})
        names.insert(fmt::format("{}layers.{}.attention.{}", prefix, i, buffer));
    } else {
      names.insert(fmt::format("{}layers.{}.self_attn.rotary_emb.inv_freq", prefix, i));
    }
  }
  return names;
}

}  // namespace ms::hf
