#include "nn/params.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "mesh/layers.h"
#include "mesh/range.h"

namespace ms::nn {
namespace {

constexpr std::int64_t kAlignment = 64;  // elements; blocks start on cache lines in every type

// Collects parameters. A block is the operand of one matmul, so its members are adjacent.
class SpanBuilder {
 public:
  SpanBuilder(std::string name, int tp, int tp_rank, float std) : tp_(tp), tp_rank_(tp_rank), std_(std) {
    span_.name = std::move(name);
  }

  void matrix_by_rows(const std::string& name, std::int64_t rows, std::int64_t cols) {
    push(cut(mesh::shard_rows(name, rows, cols, tp_, tp_rank_), name), Init::normal, std_, true);
    mark_matrix();
  }
  void matrix_by_cols(const std::string& name, std::int64_t rows, std::int64_t cols, float std) {
    push(cut(mesh::shard_cols(name, rows, cols, tp_, tp_rank_), name), Init::normal, std, true);
    mark_matrix();
  }
  void replicated_matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
    push(mesh::replicated(name, rows, cols), Init::normal, std_, true);
  }
  void replicated_vector(const std::string& name, std::int64_t cols, Init init) {
    push(mesh::replicated(name, 1, cols), init, 0.0F, false);
  }
  // A matrix of which every rank computes the gradient of its own shards of what follows.
  void matrix_of_shards(const std::string& name, std::int64_t rows, std::int64_t cols) {
    replicated_matrix(name, rows, cols);
    blocks_.back().back().by_head = true;
    mark_matrix();
  }
  // A vector that every head uses.
  void vector_of_heads(const std::string& name, std::int64_t cols) {
    replicated_vector(name, cols, Init::ones);
    blocks_.back().back().by_head = true;
  }
  void vector_by_cols(const std::string& name, std::int64_t cols) {
    push(cut(mesh::shard_cols(name, 1, cols, tp_, tp_rank_), name), Init::zeros, 0.0F, false);
  }
  void vocabulary(const std::string& name, const ModelConfig& model, bool scattered) {
    push(mesh::shard_rows_padded(name, model.vocab, model.hidden, tp_, tp_rank_, model.vocab_multiple), Init::normal,
         std_, true);
    blocks_.back().back().scattered = scattered;
  }
  void end_block() { blocks_.emplace_back(); }

  SpanSpec finish(int dp) {
    // Replicated blocks first, those by head before the others, each block aligned, its members without gaps.
    std::int64_t offset = 0;
    const auto place = [&](bool replicated, bool by_head) {
      for (std::vector<ParamSpec>& block : blocks_) {
        if (block.empty() || block.front().shard.replicated != replicated || block.front().by_head != by_head) continue;
        for (ParamSpec& param : block) {
          param.offset = offset;
          offset += param.numel();
          span_.params.push_back(param);
        }
        offset = mesh::pad_to_multiple(offset, kAlignment);
      }
      return offset;
    };
    span_.by_head = place(true, true);
    span_.replicated = place(true, false);
    place(false, false);
    span_.numel = mesh::zero_padded(std::max<std::int64_t>(offset, 1), dp);
    return std::move(span_);
  }

 private:
  // check_model() has refused sizes that do not divide.
  mesh::ShardSpec cut(std::optional<mesh::ShardSpec> shard, const std::string& name) const {
    MS_ASSERT(shard, "{} does not divide over tp {}", name, tp_);
    return *std::move(shard);
  }
  void push(mesh::ShardSpec shard, Init init, float std, bool decay) {
    if (blocks_.empty()) blocks_.emplace_back();
    blocks_.back().push_back({.shard = std::move(shard), .decay = decay, .init = init, .init_std = std});
  }
  void mark_matrix() {
    ParamSpec& param = blocks_.back().back();
    param.matrix = std::min(param.shard.global_rows, param.shard.global_cols) > 1;
  }

  SpanSpec span_;
  int tp_, tp_rank_;
  float std_;
  std::vector<std::vector<ParamSpec>> blocks_;
};

void norm(SpanBuilder& span, const ModelConfig& model, const std::string& name) {
  span.replicated_vector(name + ".weight", model.hidden, Init::ones);
  span.end_block();
  if (model.has_layer_norm()) span.replicated_vector(name + ".bias", model.hidden, Init::zeros);
  span.end_block();
}

// Outputs that add into the residual stream start smaller (GPT-2).
float residual_std(const ModelConfig& model) {
  return static_cast<float>(model.init_std / std::sqrt(2.0 * static_cast<double>(model.layers)));
}

// The matrices into experts are one block, and so are those out of them: each of a grouped matmul's operands.
void experts(SpanBuilder& span, const ModelConfig& model, const std::string& prefix, const mesh::Range& which) {
  const auto each = [&](auto&& add) {
    for (std::int64_t e = which.begin; e < which.end; ++e) add(expert_prefix(prefix, e));
    span.end_block();
  };
  each([&](const std::string& expert) {
    span.matrix_by_rows(expert + "gate.weight", model.expert_ffn(), model.hidden);
    span.matrix_by_rows(expert + "up.weight", model.expert_ffn(), model.hidden);
  });
  each([&](const std::string& expert) {
    span.matrix_by_cols(expert + "down.weight", model.hidden, model.expert_ffn(), residual_std(model));
  });
}

void router_and_shared_experts(SpanBuilder& span, const ModelConfig& model, const std::string& prefix) {
  span.matrix_of_shards(prefix + "router.weight", model.experts, model.hidden);
  span.end_block();
  if (model.shared_experts == 0) return;
  span.matrix_by_rows(prefix + "shared.gate.weight", model.shared_ffn(), model.hidden);
  span.matrix_by_rows(prefix + "shared.up.weight", model.shared_ffn(), model.hidden);
  span.end_block();
  span.matrix_by_cols(prefix + "shared.down.weight", model.hidden, model.shared_ffn(), residual_std(model));
  span.end_block();
  if (model.shared_expert_gate) span.matrix_of_shards(prefix + "shared.router.weight", 1, model.hidden);
  span.end_block();
}

std::string mlp_prefix(std::int64_t layer) { return fmt::format("layers.{}.mlp.", layer); }

// `has_all_experts`: else they are not among the layer's parameters.
void layer(SpanBuilder& span, const ModelConfig& model, std::int64_t index, bool has_all_experts) {
  const std::string prefix = "layers." + std::to_string(index) + ".";
  const std::int64_t hidden = model.hidden, q = model.heads * model.head_dim(), kv = model.kv() * model.head_dim();

  // One matmul reads the input matrices of both branches of a parallel block with one norm.
  const bool parallel = model.shares_norm();
  const auto mlp_in = [&] {
    if (model.gated()) span.matrix_by_rows(prefix + "mlp.gate.weight", model.ffn(), hidden);
    span.matrix_by_rows(prefix + "mlp.up.weight", model.ffn(), hidden);
  };
  const auto mlp_in_bias = [&] {
    if (model.gated()) span.vector_by_cols(prefix + "mlp.gate.bias", model.ffn());
    span.vector_by_cols(prefix + "mlp.up.bias", model.ffn());
  };

  norm(span, model, prefix + "norm1");
  span.matrix_by_rows(prefix + "attn.q.weight", q, hidden);
  span.matrix_by_rows(prefix + "attn.k.weight", kv, hidden);
  span.matrix_by_rows(prefix + "attn.v.weight", kv, hidden);
  if (parallel) mlp_in();
  span.end_block();
  if (model.has_qkv_bias()) {
    span.vector_by_cols(prefix + "attn.q.bias", q);
    span.vector_by_cols(prefix + "attn.k.bias", kv);
    span.vector_by_cols(prefix + "attn.v.bias", kv);
    if (parallel) mlp_in_bias();
    span.end_block();
  }
  if (model.qk_norm) {
    span.vector_of_heads(prefix + "attn.q_norm.weight", model.head_dim());
    span.end_block();
    span.vector_of_heads(prefix + "attn.k_norm.weight", model.head_dim());
    span.end_block();
  }
  span.matrix_by_cols(prefix + "attn.out.weight", hidden, q, residual_std(model));
  span.end_block();
  if (model.has_out_bias()) span.replicated_vector(prefix + "attn.out.bias", hidden, Init::zeros);
  span.end_block();

  if (model.has_experts(index)) {
    norm(span, model, prefix + "norm2");
    router_and_shared_experts(span, model, mlp_prefix(index));
    if (has_all_experts) experts(span, model, mlp_prefix(index), {0, model.experts});
    return;
  }
  if (!parallel) {
    norm(span, model, prefix + "norm2");
    mlp_in();
    span.end_block();
    if (model.has_mlp_bias()) mlp_in_bias();
    span.end_block();
  }
  span.matrix_by_cols(prefix + "mlp.down.weight", hidden, model.ffn(), residual_std(model));
  span.end_block();
  if (model.has_mlp_bias()) span.replicated_vector(prefix + "mlp.down.bias", hidden, Init::zeros);
  span.end_block();
}

bool has_experts(const ModelConfig& model, const mesh::Range& layers) {
  for (std::int64_t i = layers.begin; i < layers.end; ++i) {
    if (model.has_experts(i)) return true;
  }
  return false;
}

// Returns a layer with experts and a dense one, or whichever of the two a chunk has.
std::vector<std::int64_t> one_of_each_kind(const ModelConfig& model, const ChunkPart& part) {
  std::vector<std::int64_t> layers{part.layer_begin};
  for (std::int64_t i = part.layer_begin; i < part.layer_end && layers.size() == 1; ++i) {
    if (model.has_experts(i) != model.has_experts(part.layer_begin)) layers.push_back(i);
  }
  return layers;
}

}  // namespace

std::string expert_prefix(const std::string& mlp, std::int64_t expert) {
  return fmt::format("{}experts.{}.", mlp, expert);
}

std::string router_bias_name(std::int64_t layer) { return mlp_prefix(layer) + "router.bias"; }

const ParamSpec* SpanSpec::find(std::string_view wanted) const {
  const auto it =
      std::find_if(params.begin(), params.end(), [&](const ParamSpec& p) { return p.shard.name == wanted; });
  return it == params.end() ? nullptr : &*it;
}

ChunkPart chunk_part(const ModelConfig& model, const mesh::Mesh& mesh, int pp_rank, int chunk, int chunks) {
  const int stage = mesh::stage_of(pp_rank, chunk, mesh.pp);
  const mesh::Range layers = mesh::layers_of(model.layers, mesh.pp, chunks, stage, mesh.ends);
  return {layers.begin, layers.end, stage == 0, stage == mesh.pp * chunks - 1};
}

std::vector<SpanSpec> chunk_spans(const ModelConfig& model, const mesh::Mesh& mesh, int tp_rank, const ChunkPart& part,
                                  int chunk, std::int64_t min_span, int ep_rank) {
  const auto std = static_cast<float>(model.init_std);
  const std::string name = "chunk " + std::to_string(chunk);
  const std::int64_t layers = part.layer_end - part.layer_begin;
  std::vector<SpanSpec> spans;
  const auto add = [&](SpanBuilder& builder, int ranks, std::int64_t place, std::int64_t end) {
    spans.push_back(builder.finish(ranks));
    spans.back().place = place, spans.back().end = end;
  };
  const auto vocabulary = [&](const std::string& span_name, const char* matrix, bool scattered) {
    SpanBuilder span(span_name, mesh.tp, tp_rank, std);
    span.vocabulary(matrix, model, scattered);
    return span;
  };
  const auto add_tied = [&](std::int64_t place) {
    // The head's matmul comes before the embedding's scatter where one chunk has both.
    SpanBuilder tied = vocabulary("tied embedding", "embed.tokens.weight", !part.last);
    add(tied, mesh.dp, place, place);
    spans.back().shared = part.first != part.last;
    spans.back().counts_in_norm = part.first;
  };
  std::int64_t layer_elements = kOneSpan;  // of the smallest one
  for (const std::int64_t index : one_of_each_kind(model, part)) {
    SpanBuilder one_layer("", mesh.tp, tp_rank, std);
    layer(one_layer, model, index, !mesh.has_expert_groups());
    layer_elements = std::min(layer_elements, one_layer.finish(1).numel);
  }
  const std::int64_t layers_per_span = (min_span - 1) / layer_elements + 1;
  const std::int64_t layer_spans = std::max<std::int64_t>(layers / layers_per_span, 1);
  const bool long_vocabulary = model.vocab * model.hidden / mesh.tp >= min_span;

  if (part.first && model.tied_embeddings) add_tied(0);
  if (part.first && !model.tied_embeddings && long_vocabulary) {
    SpanBuilder embedding = vocabulary(name + " embedding", "embed.tokens.weight", true);
    add(embedding, mesh.dp, 0, 0);
  }
  for (std::int64_t index = 0; index < layer_spans; ++index) {
    const std::int64_t begin = layers * index / layer_spans, end = layers * (index + 1) / layer_spans;
    const std::string range =
        " layers " + std::to_string(part.layer_begin + begin) + "-" + std::to_string(part.layer_begin + end - 1);
    SpanBuilder own(layer_spans == 1 ? name : name + range, mesh.tp, tp_rank, std);
    if (part.first && index == 0) {
      if (!model.tied_embeddings && !long_vocabulary) own.vocabulary("embed.tokens.weight", model, true);
      own.end_block();
      if (model.is_gpt()) own.replicated_matrix("embed.positions.weight", model.seq, model.hidden);
      own.end_block();
      if (model.patch_size > 0) own.replicated_matrix("embed.patches.weight", model.hidden, model.patch_numbers());
      own.end_block();
    }
    for (std::int64_t i = begin; i < end; ++i) layer(own, model, part.layer_begin + i, !mesh.has_expert_groups());
    if (part.last && index + 1 == layer_spans) {
      norm(own, model, "final_norm");
      if (!model.tied_embeddings && !long_vocabulary) own.vocabulary("head.weight", model, false);
      own.end_block();
    }
    add(own, mesh.dp, begin, end);
    if (!mesh.has_expert_groups() || !has_experts(model, {part.layer_begin + begin, part.layer_begin + end})) continue;
    SpanBuilder of_experts((layer_spans == 1 ? name : name + range) + " experts", mesh.expert_tp(),
                           tp_rank % mesh.expert_tp(), std);
    const std::int64_t held = model.experts / mesh.ep;
    for (std::int64_t i = part.layer_begin + begin; i < part.layer_begin + end; ++i) {
      if (model.has_experts(i)) experts(of_experts, model, mlp_prefix(i), {ep_rank * held, (ep_rank + 1) * held});
    }
    add(of_experts, mesh.edp(), begin, end);
    spans.back().experts = true;
  }
  if (part.last && !model.tied_embeddings && long_vocabulary) {
    SpanBuilder head = vocabulary(name + " head", "head.weight", false);
    add(head, mesh.dp, layers, layers);
  }
  if (part.last && model.tied_embeddings && !part.first) add_tied(layers);
  return spans;
}

namespace {

std::vector<SpanSpec> whole_model(const ModelConfig& model) {
  const mesh::Mesh one{1, 1, 1};
  return chunk_spans(model, one, 0, chunk_part(model, one, 0, 0, 1), 0);
}

}  // namespace

std::vector<std::string> parameter_names(const ModelConfig& model) {
  std::vector<std::string> names;
  for (const SpanSpec& span : whole_model(model)) {
    for (const ParamSpec& param : span.params) names.push_back(param.shard.name);
  }
  return names;
}

std::int64_t parameter_count(const ModelConfig& model) {
  std::int64_t count = 0;
  for (const SpanSpec& span : whole_model(model)) {
    for (const ParamSpec& param : span.params) count += param.shard.global_size();
  }
  return count;
}

std::int64_t matrix_parameter_count(const ModelConfig& model) {
  std::int64_t count = 0;
  for (const SpanSpec& span : whole_model(model)) {
    for (const ParamSpec& param : span.params) count += param.matrix ? param.shard.global_size() : 0;
  }
  return count;
}

}  // namespace ms::nn
