// Parameters of a model chunk as pure data: which there are, how they are sharded over tp, and where they lie in the
// chunk's flat spans. The trainer, the optimizer, the checkpoint and the plan all read these lists; nothing is
// allocated here.
//
// A span is one flat array of parameters that one collective gathers or reduces. A chunk's layers are one span or, if
// that collective would be too long to overlap compute, several. The embedding and the head belong to the first and the
// last of them, or are spans of their own if they are large enough. Tied embeddings always are: with pp > 1 the first
// and the last stage both hold them and must shard them over dp alike. In a span the parameters that every tp rank
// holds whole come first: under sequence parallelism their gradients are partial sums, which one all-reduce over tp
// adds up. First of all come those whose gradients always are.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "mesh/mesh.h"
#include "mesh/shard.h"
#include "nn/config.h"

namespace ms::nn {

enum class Init : std::uint8_t { normal, zeros, ones };

struct ParamSpec {
  mesh::ShardSpec shard;    // logical name and shape; the slice that this rank holds
  std::int64_t offset = 0;  // of the slice in its span, in elements
  bool decay = false;       // weight decay: matrices yes; norms and biases no
  Init init = Init::normal;
  float init_std = 0.0F;
  bool by_head = false;  // see SpanSpec
  bool matrix = false;   // of a layer: optimizers may take it whole. A row or column by itself is a vector
  // The gradient is scattered: a backward only adds to it, also where it sets those of other matrices
  // (TensorParallel::sets_gradients).
  bool scattered = false;

  std::int64_t numel() const { return shard.size(); }
};

struct SpanSpec {
  std::string name;               // "chunk 1", "chunk 1 layers 4-7", "tied embedding"
  std::vector<ParamSpec> params;  // by offset
  // Where in the chunk (Chunk::Pass) the forward reaches the span, and the backward completes it.
  std::int64_t place = 0;
  std::int64_t end = 0;         // the layers [place, end) of the chunk are the span's; none: place
  std::int64_t replicated = 0;  // every tp rank holds elements [0, replicated) whole
  // Elements [0, by_head) of these: each rank uses them for its own heads, so their gradients are always partial sums.
  std::int64_t by_head = 0;
  std::int64_t numel = 0;  // padded to equal parts for dp (mesh::zero_padded)
  bool shared = false;     // on the first and the last stage; the first counts it in norms
  bool experts = false;    // the same on an edp group only, which reduces and gathers it in place of dp
  bool counts_in_norm = true;

  const ParamSpec* find(std::string_view name) const;
};

// The part of the model that a chunk holds.
struct ChunkPart {
  std::int64_t layer_begin = 0, layer_end = 0;
  bool first = false;  // holds the embedding
  bool last = false;   // holds the final norm and the head
};
ChunkPart chunk_part(const ModelConfig& model, const mesh::Mesh& mesh, int pp_rank, int chunk, int chunks);

// Returns the spans of a chunk on a tp rank, by place. Splits the layers into equal spans, as many as hold at least
// `min_span` elements each. If experts have groups of their own (mesh::Mesh), those of such layers that the ep rank
// holds are a span of their own.
inline constexpr std::int64_t kOneSpan = std::numeric_limits<std::int64_t>::max();
std::vector<SpanSpec> chunk_spans(const ModelConfig& model, const mesh::Mesh& mesh, int tp_rank, const ChunkPart& part,
                                  int chunk, std::int64_t min_span = kOneSpan, int ep_rank = 0);

// Returns what the names of an expert's parameters begin with, `mlp` being that of the layer's MLP.
std::string expert_prefix(const std::string& mlp, std::int64_t expert);
// Returns the name of the bias of a layer's router (ModelConfig::router_bias), which is no parameter: no gradient, no
// span; f32 [1,E] on every rank of the layer.
std::string router_bias_name(std::int64_t layer);
// Returns the names of the logical parameters of the whole model.
std::vector<std::string> parameter_names(const ModelConfig& model);
// Returns the number of logical parameters of the whole model, without padding, and how many of them are elements of
// matrices of layers.
std::int64_t parameter_count(const ModelConfig& model);
std::int64_t matrix_parameter_count(const ModelConfig& model);

}  // namespace ms::nn
