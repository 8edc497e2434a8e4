// Parameters of a model chunk as pure data: what there is, how it is cut over tp, where it lies in the chunk's flat
// spans. The trainer, the optimizer, the checkpoint and the plan all read these lists; nothing is allocated here.
//
// A span is one flat array of parameters that is gathered and reduced as one message. A chunk's layers are one span or,
// where that would be too long a message to travel under compute, several. The embedding and the head belong to the
// first and the last of them, or are long enough for a span of their own; tied embeddings always are one, because with
// pp > 1 the first and the last stage both hold it and must cut it over dp alike. In a span the parameters that every
// tp rank holds whole come first: under sequence parallelism their gradients are partial sums, and one message adds
// them.
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

  std::int64_t numel() const { return shard.size(); }
};

struct SpanSpec {
  std::string name;               // "chunk 1", "chunk 1 layers 4-7", "tied embedding"
  std::vector<ParamSpec> params;  // by offset
  // Where in the chunk (Chunk::Pass) the forward comes to it, and the backward is through with it.
  std::int64_t place = 0;
  std::int64_t replicated = 0;  // elements [0, replicated) are those that every tp rank holds whole
  std::int64_t numel = 0;       // padded to equal parts for dp (mesh::zero_padded)
  bool shared = false;          // on the first and on the last stage; the first one counts it in norms
  bool counts_in_norm = true;

  const ParamSpec* find(std::string_view name) const;
};

// Which part of the model a chunk is.
struct ChunkPart {
  std::int64_t layer_begin = 0, layer_end = 0;
  bool first = false;  // holds the embedding
  bool last = false;   // holds the final norm and the head
};
ChunkPart chunk_part(const ModelConfig& model, const mesh::Mesh& mesh, int pp_rank, int chunk, int chunks);

// The spans of a chunk on a tp rank, by place. Cut between layers into equal spans, as many as hold at least `message`
// elements each.
inline constexpr std::int64_t kOneMessage = std::numeric_limits<std::int64_t>::max();
std::vector<SpanSpec> chunk_spans(const ModelConfig& model, const mesh::Mesh& mesh, int tp_rank, const ChunkPart& part,
                                  int chunk, std::int64_t message = kOneMessage);

// Logical parameters of the whole model, without padding.
std::int64_t parameter_count(const ModelConfig& model);

}  // namespace ms::nn
