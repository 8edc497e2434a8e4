#include "hf/foreign_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/error.h"
#include "foreign/checkpoint.h"
#include "foreign/read.h"
#include "hf/megatron_tensors.h"
#include "hf/names.h"

namespace ms::hf {
namespace {

constexpr std::string_view kTitanEmbedding = "tok_embeddings.weight";
constexpr std::array<std::string_view, 2> kUniversal{".fp32.param", ".fp32"};

// torchtitan's names of a layer's tensors, and those of transformers.
struct Renamed {
  std::string_view titan, hf;
};
constexpr std::array kOfLayer{
    Renamed{"attention.wq.", "self_attn.q_proj."},     Renamed{"attention.wk.", "self_attn.k_proj."},
    Renamed{"attention.wv.", "self_attn.v_proj."},     Renamed{"attention.wo.", "self_attn.o_proj."},
    Renamed{"feed_forward.w1.", "mlp.gate_proj."},     Renamed{"feed_forward.w2.", "mlp.down_proj."},
    Renamed{"feed_forward.w3.", "mlp.up_proj."},       Renamed{"attention_norm.", "input_layernorm."},
    Renamed{"ffn_norm.", "post_attention_layernorm."},
};

std::string from_titan(const std::string& name) {
  if (name == kTitanEmbedding) return "model.embed_tokens.weight";
  if (name == "output.weight") return kHeadName;
  for (const Renamed& row : kOfLayer) {
    const std::size_t at = name.find(row.titan);
    if (at == std::string::npos) continue;
    return fmt::format("model.{}{}{}", name.substr(0, at), row.hf, name.substr(at + row.titan.size()));
  }
  return "model." + name;
}

// Puts the rows of heads in order, in place: torchtitan pairs element 2i with 2i + 1, transformers i with i + half.
void order_pairs(std::span<std::byte> rows, std::size_t row_bytes, std::size_t head_rows) {
  std::vector<std::byte> head(head_rows * row_bytes);
  MS_ASSERT(rows.size() % head.size() == 0, "{} bytes are no whole heads of {}", rows.size(), head.size());
  for (std::size_t begin = 0; begin < rows.size(); begin += head.size()) {
    const std::span<std::byte> place = rows.subspan(begin, head.size());
    std::ranges::copy(place, head.begin());
    for (std::size_t row = 0; row < head_rows; ++row) {
      const std::size_t half = head_rows / 2, from = 2 * (row % half) + row / half;
      std::ranges::copy(std::span(head).subspan(from * row_bytes, row_bytes),
                        place.begin() + static_cast<std::ptrdiff_t>(row * row_bytes));
    }
  }
}

// ZeRO 3 saves the model as tensors without elements.
bool is_empty(const foreign::Tensor& tensor) { return std::ranges::find(tensor.shape, 0) != tensor.shape.end(); }

// Returns what stands before the names: the shortest, where copies of the weights lie deeper.
std::optional<std::string> prefix_before(const foreign::Checkpoint& checkpoint, std::string_view name) {
  std::optional<std::string> prefix;
  for (const foreign::Tensor& tensor : checkpoint.tensors) {
    if (!tensor.name.ends_with(name) || !is_of_model(tensor.name) || is_empty(tensor)) continue;
    std::string before = tensor.name.substr(0, tensor.name.size() - name.size());
    if ((before.empty() || before.ends_with('.')) && (!prefix || before.size() < prefix->size()))
      prefix = std::move(before);
  }
  return prefix;
}

// The weights of a universal checkpoint of DeepSpeed: "zero.NAME.fp32.param", or flat as "zero.NAME.fp32".
std::map<std::string, TensorView> universal_tensors(const std::shared_ptr<const foreign::Checkpoint>& checkpoint,
                                                    const std::string& prefix, const nn::ModelConfig& model) {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const Mapped& tensor : tensors_of(model)) shapes.emplace(tensor.name, tensor.shape);
  std::map<std::string, TensorView> views;
  for (const foreign::Tensor& tensor : checkpoint->tensors) {
    for (const std::string_view end : kUniversal) {
      if (!tensor.name.starts_with(prefix) || !tensor.name.ends_with(end) || tensor.dtype == nullptr) continue;
      const std::string name = tensor.name.substr(prefix.size(), tensor.name.size() - prefix.size() - end.size());
      TensorView view = view_of(checkpoint, tensor);
      const auto shape = shapes.find(name);
      std::int64_t elements = 1;
      if (shape != shapes.end()) {
        for (const std::int64_t size : shape->second) elements *= size;
        if (view.shape == std::vector{elements}) view.shape = shape->second;
      }
      views.emplace(name, std::move(view));
    }
  }
  return views;
}

}  // namespace

bool is_of_model(const std::string& name) {
  constexpr std::array<std::string_view, 8> kOthers{"optimizer",  "optim",     "lr_scheduler", "train_state",
                                                    "dataloader", "rng_state", "common.",      "chained_"};
  return std::ranges::none_of(kOthers, [&](std::string_view word) { return name.starts_with(word); });
}

TensorView view_of(const std::shared_ptr<const foreign::Checkpoint>& checkpoint, const foreign::Tensor& tensor) {
  const foreign::TensorReader sized(*checkpoint, tensor);  // refuses one that is damaged
  const std::string_view type = tensor.dtype->safetensors;
  return {.dtype = type == "F32"    ? Dtype::f32
                   : type == "BF16" ? Dtype::bf16
                   : type == "F16"  ? Dtype::f16
                                    : Dtype::other,
          .dtype_name = std::string(tensor.dtype->name),
          .shape = tensor.shape,
          .file = nullptr,
          .size_bytes = static_cast<std::size_t>(sized.size_bytes()),
          .read_other = [checkpoint, &tensor](std::size_t at, std::span<std::byte> out) {
            foreign::TensorReader(*checkpoint, tensor).read(static_cast<std::int64_t>(at), out);
          }};
}

bool is_foreign_checkpoint(const std::string& path) { return foreign::format_of(path) != nullptr; }

std::map<std::string, TensorView> foreign_tensors(const std::string& path, const nn::ModelConfig& model) {
  const auto checkpoint = std::make_shared<const foreign::Checkpoint>(foreign::open(path));
  if (!checkpoint->finished)
    throw Error("ckpt.incomplete", Blame::storage, fmt::format("{}: {}", path, checkpoint->problems.front().text));
  const std::string embedding = embedding_name(model);
  std::optional<std::string> prefix = prefix_before(*checkpoint, embedding);
  if (!prefix) prefix = prefix_before(*checkpoint, embedding.substr(prefix_of(model).size()));
  for (const std::string_view end : kUniversal) {
    if (prefix) break;
    if (const auto universal = prefix_before(*checkpoint, embedding + std::string(end)))
      return universal_tensors(checkpoint, *universal, model);
  }
  if (!prefix && !model.is_gpt()) {
    if (const auto megatron = prefix_before(*checkpoint, kMegatronEmbedding))
      return megatron_tensors(checkpoint, *megatron, model);
  }
  const bool titan = !prefix && !model.is_gpt();
  if (titan) prefix = prefix_before(*checkpoint, kTitanEmbedding);
  if (!prefix)
    throw user_error("hf.import",
                     fmt::format("{} has no tensor '{}'{}", path, embedding,
                                 titan ? fmt::format(", '{}' or '{}'", kTitanEmbedding, kMegatronEmbedding) : ""),
                     checkpoint->format == "deepspeed"
                         ? "ZeRO 3 keeps parts of parameters: DeepSpeed's ds_to_universal or zero_to_fp32.py joins them"
                         : "'ms-ckpt show --params' lists its tensors");
  std::map<std::string, TensorView> views;
  for (const foreign::Tensor& tensor : checkpoint->tensors) {
    if (!tensor.name.starts_with(*prefix) || !is_of_model(tensor.name) || tensor.dtype == nullptr) continue;
    TensorView view = view_of(checkpoint, tensor);
    std::string name = tensor.name.substr(prefix->size());
    if (titan) name = from_titan(name);
    const bool turned =
        titan && tensor.shape.size() == 2 && (name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight"));
    const std::size_t row_bytes =
        tensor.shape.empty() || tensor.shape[0] == 0 ? 0 : view.size_bytes / static_cast<std::size_t>(tensor.shape[0]);
    const std::size_t head_rows =
        turned && tensor.shape[0] % model.head_dim() == 0 ? static_cast<std::size_t>(model.head_dim()) : 0;
    if (head_rows > 0) {
      view.read_other = [read = view.read_other, row_bytes, head_rows](std::size_t at, std::span<std::byte> out) {
        read(at, out);
        order_pairs(out, row_bytes, head_rows);
      };
    }
    views.emplace(std::move(name), std::move(view));
  }
  return views;
}

}  // namespace ms::hf
