// The parameter lists of all ranks together are the model: every element once, whatever the mesh. Spans have the layout
// that matmuls and collectives need.
#include "nn/params.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "support/model_shapes.h"

namespace ms::nn {
namespace {

ModelConfig model_of(const char* family, bool tied, bool parallel_block = false) {
  ModelConfig model{.family = family,
                    .layers = 5,
                    .hidden = 32,
                    .heads = 8,
                    .vocab = 51,
                    .seq = 16,
                    .tied_embeddings = tied,
                    .parallel_block = parallel_block};
  if (!model.is_gpt()) model.kv_heads = 4, model.ffn_hidden = 88;
  return model;
}

struct ParamsCase {
  ModelConfig model;
  mesh::Mesh mesh;
  int chunks;
  std::int64_t min_span = kOneSpan;
  std::string name() const {
    return fmt::format("{} {}{} dp {} pp {} tp {} chunks {} min_span {}", model.family,
                       model.tied_embeddings ? "tied" : "untied", model.parallel_block ? " parallel" : "", mesh.dp,
                       mesh.pp, mesh.tp, chunks, min_span);
  }
};

std::vector<ParamsCase> cases() {
  std::vector<ParamsCase> cases;
  for (const char* family : {"gpt", "llama"}) {
    for (const bool tied : {true, false}) {
      for (const auto& [mesh, chunks] : {std::pair{mesh::Mesh{1, 1, 1}, 1},
                                         {mesh::Mesh{2, 1, 4}, 1},
                                         {mesh::Mesh{3, 2, 2}, 1},
                                         {mesh::Mesh{1, 2, 2}, 2},
                                         {mesh::Mesh{7, 5, 1}, 1}}) {
        for (const bool parallel : {false, true}) {
          // A span for each layer, for about two layers, for a chunk.
          for (const std::int64_t min_span : {std::int64_t{1}, std::int64_t{20000}, kOneSpan}) {
            cases.push_back({model_of(family, tied, parallel), mesh, chunks, min_span});
          }
        }
      }
    }
  }
  return cases;
}

std::vector<SpanSpec> spans_of(const ParamsCase& c, int pp_rank, int tp_rank, int chunk) {
  const ChunkPart part = chunk_part(c.model, c.mesh, pp_rank, chunk, c.chunks);
  return chunk_spans(c.model, c.mesh, tp_rank, part, chunk, c.min_span);
}

// Calls visit(span, pp rank, tp rank, chunk) for every span of every rank of one dp replica.
template <class Visit>
void for_each_span(const ParamsCase& c, Visit visit) {
  for (int p = 0; p < c.mesh.pp; ++p) {
    for (int t = 0; t < c.mesh.tp; ++t) {
      for (int chunk = 0; chunk < c.chunks; ++chunk) {
        for (const SpanSpec& span : spans_of(c, p, t, chunk)) visit(span, p, t);
      }
    }
  }
}

// Returns how often each element of each parameter is held. Replicated ones count on tp rank 0, shared spans on the
// first stage.
std::map<std::string, std::vector<int>> holders(const ParamsCase& c) {
  std::map<std::string, std::vector<int>> held;
  for_each_span(c, [&](const SpanSpec& span, int, int t) {
    if (!span.counts_in_norm) return;
    for (const ParamSpec& param : span.params) {
      const mesh::ShardSpec& s = param.shard;
      std::vector<int>& elements = held[s.name];
      elements.resize(static_cast<std::size_t>(s.global_size()));
      if (s.replicated && t != 0) continue;
      for (std::int64_t row = s.row0; row < s.row0 + s.logical_rows(); ++row) {
        for (std::int64_t col = s.col0; col < s.col0 + s.cols; ++col) {
          ++elements.at(static_cast<std::size_t>(row * s.global_cols + col));
        }
      }
    }
  });
  return held;
}

cost::ModelShape shape_of(const ModelConfig& model) {
  cost::ModelShape shape =
      model.is_gpt()
          ? cost::gpt_shape(model.layers, model.hidden, model.heads, model.vocab, model.seq)
          : cost::llama_shape(model.layers, model.hidden, model.heads, model.kv(), model.ffn(), model.vocab, model.seq);
  shape.tied = model.tied_embeddings;
  shape.parallel_block = model.parallel_block;
  return shape;
}

TEST(Params, EveryElementIsHeldOnceAndAllAreCounted) {
  for (const ParamsCase& c : cases()) {
    std::int64_t count = 0;
    for (const auto& [name, elements] : holders(c)) {
      EXPECT_EQ(std::set<int>(elements.begin(), elements.end()), std::set<int>{1}) << c.name() << ", " << name;
      count += std::ssize(elements);
    }
    EXPECT_EQ(count, cost::count_parameters(shape_of(c.model)).total) << c.name();
    EXPECT_EQ(count, parameter_count(c.model)) << c.name();
  }
}

TEST(Params, Names) {
  const std::set<std::string> both{"norm1.weight", "attn.q.weight",   "attn.k.weight", "attn.v.weight",
                                   "norm2.weight", "attn.out.weight", "mlp.up.weight", "mlp.down.weight"};
  const std::set<std::string> gpt{"norm1.bias",  "norm2.bias",    "attn.q.bias", "attn.k.bias",
                                  "attn.v.bias", "attn.out.bias", "mlp.up.bias", "mlp.down.bias"};
  for (const ParamsCase& c : cases()) {
    std::set<std::string> expected{"embed.tokens.weight", "final_norm.weight"};
    if (!c.model.tied_embeddings) expected.insert("head.weight");
    if (c.model.is_gpt()) expected.insert({"embed.positions.weight", "final_norm.bias"});
    for (int i = 0; i < c.model.layers; ++i) {
      for (const std::string& name : both) expected.insert(fmt::format("layers.{}.{}", i, name));
      for (const std::string& name : gpt) {
        if (c.model.is_gpt()) expected.insert(fmt::format("layers.{}.{}", i, name));
      }
      if (c.model.gated()) expected.insert(fmt::format("layers.{}.mlp.gate.weight", i));
      if (c.model.parallel_block) {
        expected.erase(fmt::format("layers.{}.norm2.weight", i));
        expected.erase(fmt::format("layers.{}.norm2.bias", i));
      }
    }
    std::set<std::string> names;
    for (const auto& row : holders(c)) names.insert(row.first);
    EXPECT_EQ(names, expected) << c.name();
  }
}

TEST(Params, SpansHaveTheLayoutOfMatmulsAndCollectives) {
  for (const ParamsCase& c : cases()) {
    for_each_span(c, [&](const SpanSpec& span, int p, int t) {
      const std::string where = fmt::format("{}, {} of pp {} tp {}", c.name(), span.name, p, t);
      std::int64_t end = 0;
      for (const ParamSpec& param : span.params) {
        EXPECT_GE(param.offset, end) << where << ": " << param.shard.name << " lies over the one before it";
        EXPECT_LT(param.offset - end, 64) << where << ": " << param.shard.name;
        end = param.offset + param.numel();
        EXPECT_EQ(param.shard.replicated, end <= span.replicated) << where << ": " << param.shard.name;
        EXPECT_EQ(span.find(param.shard.name), &param) << where;
        EXPECT_EQ(param.decay, param.shard.global_rows > 1) << where << ": " << param.shard.name;
      }
      EXPECT_LE(span.replicated, span.numel) << where;
      EXPECT_GE(span.numel, end) << where;
      EXPECT_EQ(span.numel % (std::int64_t{c.mesh.dp} * 64), 0) << where;
      EXPECT_LT(span.numel - end, (c.mesh.dp + 1) * 64) << where << ": padding";
    });
  }
}

TEST(Params, OperandsOfOneMatmulAreAdjacent) {
  const std::vector<std::vector<std::string>> serial{{"attn.q.weight", "attn.k.weight", "attn.v.weight"},
                                                     {"attn.q.bias", "attn.k.bias", "attn.v.bias"},
                                                     {"mlp.gate.weight", "mlp.up.weight"}};
  const std::vector<std::vector<std::string>> parallel_gpt{
      {"attn.q.weight", "attn.k.weight", "attn.v.weight", "mlp.up.weight"},
      {"attn.q.bias", "attn.k.bias", "attn.v.bias", "mlp.up.bias"}};
  const std::vector<std::vector<std::string>> parallel_llama{
      {"attn.q.weight", "attn.k.weight", "attn.v.weight", "mlp.gate.weight", "mlp.up.weight"}};
  for (const ParamsCase& c : cases()) {
    const auto& blocks = !c.model.parallel_block ? serial : c.model.is_gpt() ? parallel_gpt : parallel_llama;
    int blocks_found = 0;
    for_each_span(c, [&](const SpanSpec& span, int, int) {
      for (int i = 0; i < c.model.layers; ++i) {
        for (const std::vector<std::string>& block : blocks) {
          const ParamSpec* before = span.find(fmt::format("layers.{}.{}", i, block[0]));
          if (before == nullptr) continue;
          EXPECT_EQ(before->offset % 64, 0) << c.name() << ", " << before->shard.name;
          for (std::size_t k = 1; k < block.size(); ++k) {
            const ParamSpec* param = span.find(fmt::format("layers.{}.{}", i, block[k]));
            ASSERT_NE(param, nullptr) << c.name() << ", " << block[k];
            EXPECT_EQ(param->offset, before->offset + before->numel()) << c.name() << ", " << param->shard.name;
            before = param;
          }
          ++blocks_found;
        }
      }
    });
    // Serial gpt has both of attention; llama has no biases.
    const int of_a_layer = c.model.parallel_block && !c.model.is_gpt() ? 1 : 2;
    EXPECT_EQ(blocks_found, of_a_layer * c.model.layers * c.mesh.tp) << c.name();
  }
}

// Those of all experts are one operand, and every tp rank has the router.
TEST(Params, Experts) {
  ModelConfig model = model_of("llama", false, false);
  model.experts = 3, model.expert_ffn_hidden = 24;
  cost::ModelShape shape = shape_of(model);
  shape.experts = 3, shape.experts_per_token = 2, shape.ffn = 24;
  EXPECT_EQ(parameter_count(model), cost::count_parameters(shape).total);
  for (const std::int64_t min_span : {std::int64_t{1}, kOneSpan}) {
    const ParamsCase c{model, mesh::Mesh{2, 1, 2}, 1, min_span};
    for (const auto& [name, elements] : holders(c))
      EXPECT_EQ(std::set<int>(elements.begin(), elements.end()), std::set<int>{1}) << name;
    int blocks = 0;
    for_each_span(c, [&](const SpanSpec& span, int, int) {
      const ParamSpec* router = span.find("layers.2.mlp.router.weight");
      if (router == nullptr) return;
      EXPECT_TRUE(router->by_head && router->shard.replicated);
      EXPECT_EQ(router->shard.rows, 3);
      const auto at = [&](const std::string& tail) { return span.find("layers.2.mlp.experts." + tail)->offset; };
      EXPECT_EQ(at("0.gate.weight") % 64, 0);
      EXPECT_EQ(at("2.up.weight") - at("0.gate.weight"), 5 * 12 * 32);
      EXPECT_EQ(at("2.down.weight") - at("0.down.weight"), 2 * 32 * 12);
      ++blocks;
    });
    EXPECT_EQ(blocks, 2);
  }
}

// Dense layers among those with experts have one MLP; no span of experts is made for them alone.
TEST(Params, DenseLayersAmongExperts) {
  ModelConfig model = model_of("llama", false, false);
  model.experts = 4, model.expert_ffn_hidden = 24, model.shared_experts = 1, model.dense_layers = "0,2";
  cost::ModelShape shape = shape_of(model);
  shape.experts = 4, shape.experts_per_token = 2, shape.ffn = shape.shared_ffn = 24;
  shape.dense_layers = 2, shape.dense_ffn = model.ffn();
  EXPECT_EQ(parameter_count(model), cost::count_parameters(shape).total);
  mesh::Mesh mesh{2, 1, 2};
  mesh.ep = 2;
  for (const std::int64_t min_span : {std::int64_t{1}, kOneSpan}) {
    int spans_of_experts = 0;
    const auto spans = chunk_spans(model, mesh, 0, chunk_part(model, mesh, 0, 0, 1), 0, min_span);
    const auto has = [&](const std::string& name) {
      return std::ranges::any_of(spans, [&](const SpanSpec& span) { return span.find(name) != nullptr; });
    };
    for (const SpanSpec& span : spans) spans_of_experts += span.experts ? 1 : 0;
    EXPECT_EQ(spans_of_experts, min_span == 1 ? model.layers - 2 : 1);
    for (std::int64_t i = 0; i < model.layers; ++i) {
      const std::string mlp = fmt::format("layers.{}.mlp.", i);
      EXPECT_EQ(has(mlp + "down.weight"), i == 0 || i == 2);
      EXPECT_EQ(has(mlp + "router.weight") && has(mlp + "experts.1.up.weight"), i != 0 && i != 2);
    }
  }
}

// Biases of Llama's relatives, and the norms of heads, whose gradients each tp rank has for its own heads only.
TEST(Params, BiasesAndNormsOfHeads) {
  for (const bool parallel : {false, true}) {
    ModelConfig model = model_of("llama", false, parallel);
    model.qkv_bias = model.out_bias = model.mlp_bias = model.qk_norm = true;
    model.head_size = 10;
    cost::ModelShape shape = shape_of(model);
    shape.qkv_bias = shape.out_bias = shape.mlp_bias = shape.qk_norm = true;
    shape.head_dim = 10;
    EXPECT_EQ(parameter_count(model), cost::count_parameters(shape).total);
    const ParamsCase c{model, mesh::Mesh{2, 1, 2}, 1};
    for_each_span(c, [&](const SpanSpec& span, int, int) {
      std::int64_t by_head = 0;
      for (const ParamSpec& param : span.params) {
        const bool of_heads =
            param.shard.name.ends_with("q_norm.weight") || param.shard.name.ends_with("k_norm.weight");
        EXPECT_EQ(of_heads, param.offset < span.by_head) << param.shard.name;
        EXPECT_EQ(param.by_head, of_heads) << param.shard.name;
        if (of_heads) by_head += param.numel();
      }
      EXPECT_EQ(by_head, model.layers * 2 * 10);
      EXPECT_LE(span.by_head, span.replicated);
      const auto offset = [&](const char* name) { return span.find(std::string("layers.2.") + name)->offset; };
      const std::int64_t gate = offset("mlp.gate.bias");
      EXPECT_EQ(offset("mlp.up.bias"), gate + 44);
      if (parallel) {
        EXPECT_EQ(gate, offset("attn.v.bias") + 20);
      } else {
        EXPECT_EQ(gate % 64, 0);
      }
    });
  }
}

TEST(Params, RanksOfAGroupAgree) {
  for (const ParamsCase& c : cases()) {
    // tp ranks reduce and gather spans of equal length together, and the replicated part of each.
    for (int p = 0; p < c.mesh.pp; ++p) {
      for (int chunk = 0; chunk < c.chunks; ++chunk) {
        const std::vector<SpanSpec> first = spans_of(c, p, 0, chunk);
        for (int t = 1; t < c.mesh.tp; ++t) {
          const std::vector<SpanSpec> other = spans_of(c, p, t, chunk);
          ASSERT_EQ(other.size(), first.size());
          for (std::size_t i = 0; i < first.size(); ++i) {
            EXPECT_EQ(other[i].numel, first[i].numel) << c.name();
            EXPECT_EQ(other[i].replicated, first[i].replicated) << c.name();
          }
        }
      }
    }
    // The tied embedding is a span of its own, equal on the first and the last stage, and counted by the first.
    std::vector<SpanSpec> tied;
    for_each_span(c, [&](const SpanSpec& span, int, int t) {
      if (span.name == "tied embedding" && t == 0) tied.push_back(span);
    });
    const bool two_stages = c.mesh.pp * c.chunks > 1;
    ASSERT_EQ(tied.size(), !c.model.tied_embeddings ? 0U : two_stages ? 2U : 1U) << c.name();
    for (std::size_t i = 0; i < tied.size(); ++i) {
      EXPECT_EQ(tied[i].shared, two_stages) << c.name();
      EXPECT_EQ(tied[i].counts_in_norm, i == 0) << c.name();
      EXPECT_EQ(tied[i].numel, tied[0].numel) << c.name();
      EXPECT_EQ(tied[i].params.at(0).shard, tied[0].params.at(0).shard) << c.name();
    }
  }
}

TEST(Params, SpansSplitBetweenLayers) {
  const ModelConfig model = model_of("gpt", false, false);
  const auto names = [&](std::int64_t min_span, const ChunkPart& part) {
    std::string all;
    for (const SpanSpec& span : chunk_spans(model, {2, 1, 2}, 0, part, 0, min_span)) {
      all += fmt::format("{}{} at {}", all.empty() ? "" : ", ", span.name, span.place);
      if (span.end - span.place > 1) all += fmt::format(" to {}", span.end - 1);
    }
    return all;
  };
  const ChunkPart whole{0, 5, true, true}, middle{2, 4, false, false};
  EXPECT_EQ(names(kOneSpan, whole), "chunk 0 at 0 to 4");
  // A layer has some 6,500 elements on a tp rank, the embedding and the head 832.
  EXPECT_EQ(names(13000, whole), "chunk 0 layers 0-1 at 0 to 1, chunk 0 layers 2-4 at 2 to 4");
  EXPECT_EQ(names(1000, whole),
            "chunk 0 layers 0-0 at 0, chunk 0 layers 1-1 at 1, chunk 0 layers 2-2 at 2, chunk 0 layers 3-3 at 3, "
            "chunk 0 layers 4-4 at 4");
  EXPECT_EQ(names(13000, middle), "chunk 0 at 0 to 1");
  EXPECT_EQ(names(1, middle), "chunk 0 layers 2-2 at 0, chunk 0 layers 3-3 at 1");
  EXPECT_EQ(names(500, {0, 1, true, true}), "chunk 0 embedding at 0, chunk 0 at 0, chunk 0 head at 1");

  for (const ParamsCase& c : cases()) {
    for_each_span(c, [&](const SpanSpec& span, int, int t) {
      if (span.name.find("layers") != std::string::npos) { EXPECT_GE(span.numel, c.min_span) << c.name() << ", " << t; }
    });
    for (int chunk = 0; chunk < c.chunks; ++chunk) {
      const std::vector<SpanSpec> spans = spans_of(c, 0, 0, chunk);
      EXPECT_TRUE(std::ranges::is_sorted(spans, {}, &SpanSpec::place)) << c.name();
    }
  }
}

TEST(ChunkPart, CoversAllLayersInOrderOfTheStages) {
  for (const ParamsCase& c : cases()) {
    std::int64_t next = 0;
    for (int chunk = 0; chunk < c.chunks; ++chunk) {
      for (int p = 0; p < c.mesh.pp; ++p) {
        const ChunkPart part = chunk_part(c.model, c.mesh, p, chunk, c.chunks);
        EXPECT_EQ(part.layer_begin, next) << c.name();
        EXPECT_GT(part.layer_end, part.layer_begin) << c.name();
        next = part.layer_end;
        EXPECT_EQ(part.first, p == 0 && chunk == 0) << c.name();
        EXPECT_EQ(part.last, p == c.mesh.pp - 1 && chunk == c.chunks - 1) << c.name();
      }
    }
    EXPECT_EQ(next, c.model.layers) << c.name();
  }
}

TEST(Params, InitialScaleOfResidualOutputs) {
  const ParamsCase c{model_of("gpt", false), {1, 1, 1}, 1};
  const std::vector<SpanSpec> spans = spans_of(c, 0, 0, 0);
  ASSERT_EQ(spans.size(), 1U);
  for (const ParamSpec& param : spans[0].params) {
    const std::string& name = param.shard.name;
    const bool residual = name.ends_with("attn.out.weight") || name.ends_with("mlp.down.weight");
    if (param.init == Init::normal) {
      EXPECT_FLOAT_EQ(param.init_std, residual ? 0.02F / std::sqrt(10.0F) : 0.02F) << name;
    } else {
      EXPECT_EQ(param.init == Init::ones, name.find("norm") != std::string::npos && name.ends_with(".weight")) << name;
    }
  }
}

}  // namespace
}  // namespace ms::nn
