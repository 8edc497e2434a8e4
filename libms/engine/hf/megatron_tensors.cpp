#include "hf/megatron_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "foreign/read.h"
#include "hf/foreign_tensors.h"
#include "hf/names.h"

namespace ms::hf {
namespace {

constexpr std::string_view kLayers = "decoder.layers.";

// Megatron-LM's names of a layer's tensors that are the same there, and those of transformers.
struct NameOfMegatron {
  std::string_view megatron, hf;
};
constexpr std::array kMegatronLayer{
    NameOfMegatron{"input_layernorm.weight", "input_layernorm.weight"},
    NameOfMegatron{"self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"},
    NameOfMegatron{"self_attention.q_layernorm.weight", "self_attn.q_norm.weight"},
    NameOfMegatron{"self_attention.k_layernorm.weight", "self_attn.k_norm.weight"},
    NameOfMegatron{"self_attention.linear_proj.weight", "self_attn.o_proj.weight"},
    NameOfMegatron{"self_attention.linear_proj.bias", "self_attn.o_proj.bias"},
    NameOfMegatron{"pre_mlp_layernorm.weight", "post_attention_layernorm.weight"},
    NameOfMegatron{"mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight"},
    NameOfMegatron{"mlp.linear_fc2.weight", "mlp.down_proj.weight"},
    NameOfMegatron{"mlp.linear_fc2.bias", "mlp.down_proj.bias"},
};

// Rows of a matrix, or elements of a vector: runs of `run` of them, each `stride` behind the one before.
struct Rows {
  std::int64_t first = 0, count = 0, run = 0, stride = 0;
};

class Splitter {
 public:
  Splitter(std::shared_ptr<const foreign::Checkpoint> checkpoint, const nn::ModelConfig& model)
      : checkpoint_(std::move(checkpoint)), model_(model) {}

  void take(const foreign::Tensor& tensor, const std::string& name) {
    if (std::ranges::find(tensor.shape, 0) != tensor.shape.end()) return;
    if (name.ends_with("._extra_state")) return;  // of Transformer Engine's FP8
    const auto all = [&](std::int64_t most) {
      const std::int64_t count = tensor.shape.empty() ? 1 : std::min(tensor.shape[0], most);
      return Rows{.count = count, .run = count, .stride = 0};
    };
    if (name == kMegatronEmbedding) {
      add(tensor, tensor.shape, embedding_name(model_), all(model_.vocab));
    } else if (name == "output_layer.weight") {
      add(tensor, tensor.shape, head_name(model_), all(model_.vocab));
    } else if (name == "decoder.final_layernorm.weight") {
      add(tensor, tensor.shape, "model.norm.weight", all(INT64_MAX));
    } else if (!name.starts_with(kLayers) || !take_layers(tensor, name.substr(kLayers.size()))) {
      add(tensor, tensor.shape, name, all(INT64_MAX));
    }
  }

  std::map<std::string, TensorView> views() && { return std::move(views_); }

 private:
  // Returns whether the tensor of all layers, or of the one that its name begins with, is known.
  bool take_layers(const foreign::Tensor& tensor, std::string_view name) {
    std::int64_t first_layer = 0, layers = 1;
    std::vector<std::int64_t> shape = tensor.shape;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), first_layer);
    if (error == std::errc() && end != name.data() + name.size()) {
      name.remove_prefix(static_cast<std::size_t>(end - name.data()) + 1);
    } else if (!shape.empty()) {
      layers = shape[0];
      require(tensor, layers == model_.layers);
      shape.erase(shape.begin());
    }
    if (shape.empty()) return false;
    for (std::int64_t i = 0; i < layers; ++i) {
      if (!take_layer(tensor, shape, name, fmt::format("model.layers.{}.", first_layer + i), i * shape[0]))
        return false;
    }
    return true;
  }

  // One layer, of which the rows begin at `begin`.
  bool take_layer(const foreign::Tensor& tensor, const std::vector<std::int64_t>& shape, std::string_view name,
                  const std::string& before, std::int64_t begin) {
    const std::int64_t rows = shape[0];
    constexpr std::string_view kJoined = "self_attention.linear_qkv.", kGated = "mlp.linear_fc1.";
    const auto kind_behind = [&](std::string_view start) {
      const std::string_view kind = name.starts_with(start) ? name.substr(start.size()) : "";
      return kind == "weight" || kind == "bias" ? kind : "";
    };
    if (const std::string_view kind = kind_behind(kJoined); !kind.empty()) {
      const std::int64_t head = model_.head_dim(), groups = model_.kv(), query = model_.heads / groups * head,
                         group = query + 2 * head;
      require(tensor, rows == groups * group);
      const auto part = [&](std::string_view to, std::int64_t at, std::int64_t run) {
        add(tensor, shape, fmt::format("{}self_attn.{}_proj.{}", before, to, kind),
            {.first = begin + at, .count = groups * run, .run = run, .stride = group});
      };
      part("q", 0, query);
      part("k", query, head);
      part("v", query + head, head);
      return true;
    }
    if (const std::string_view kind = kind_behind(kGated); !kind.empty()) {
      const std::int64_t half = model_.ffn();
      require(tensor, rows == 2 * half);
      add(tensor, shape, fmt::format("{}mlp.gate_proj.{}", before, kind), {.first = begin, .count = half, .run = half});
      add(tensor, shape, fmt::format("{}mlp.up_proj.{}", before, kind),
          {.first = begin + half, .count = half, .run = half});
      return true;
    }
    const auto* const row = std::ranges::find(kMegatronLayer, name, &NameOfMegatron::megatron);
    if (row == kMegatronLayer.end()) return false;
    add(tensor, shape, fmt::format("{}{}", before, row->hf), {.first = begin, .count = rows, .run = rows});
    return true;
  }

  void require(const foreign::Tensor& tensor, bool holds) const {
    if (holds) return;
    throw user_error("hf.import", fmt::format("'{}' is [{}], which is not that of the model in config.json",
                                              plain_text(tensor.name, 200), fmt::join(tensor.shape, ", ")));
  }

  void add(const foreign::Tensor& tensor, std::vector<std::int64_t> shape, std::string name, const Rows& rows) {
    TensorView view = view_of(checkpoint_, tensor);
    std::int64_t row_bytes = tensor.dtype->size_bytes;
    for (std::size_t d = 1; d < shape.size(); ++d) row_bytes *= shape[d];
    if (!shape.empty()) shape[0] = rows.count;
    view.shape = std::move(shape);
    view.size_bytes = static_cast<std::size_t>(rows.count * row_bytes);
    view.read_other = [checkpoint = checkpoint_, &tensor, rows, row_bytes](std::size_t at, std::span<std::byte> out) {
      foreign::TensorReader reader(*checkpoint, tensor);
      for (auto from = static_cast<std::int64_t>(at); !out.empty();) {
        const std::int64_t row = from / row_bytes, in_run = row % rows.run * row_bytes + from % row_bytes;
        const std::int64_t source = (rows.first + row / rows.run * rows.stride) * row_bytes + in_run;
        const std::int64_t size = std::min<std::int64_t>(std::ssize(out), rows.run * row_bytes - in_run);
        reader.read(source, out.first(static_cast<std::size_t>(size)));
        out = out.subspan(static_cast<std::size_t>(size));
        from += size;
      }
    };
    views_.insert_or_assign(std::move(name), std::move(view));
  }

  const std::shared_ptr<const foreign::Checkpoint> checkpoint_;
  const nn::ModelConfig& model_;
  std::map<std::string, TensorView> views_;
};

}  // namespace

std::map<std::string, TensorView> megatron_tensors(const std::shared_ptr<const foreign::Checkpoint>& checkpoint,
                                                   const std::string& prefix, const nn::ModelConfig& model) {
  Splitter splitter(checkpoint, model);
  for (const foreign::Tensor& tensor : checkpoint->tensors) {
    if (tensor.dtype != nullptr && tensor.name.starts_with(prefix) && is_of_model(tensor.name))
      splitter.take(tensor, tensor.name.substr(prefix.size()));
  }
  return std::move(splitter).views();
}

}  // namespace ms::hf
