// The names and layouts of a model's parameters in Hugging Face checkpoints, as pure data. Export and import read the
// same list, one forwards, the other backwards.
//
// Rotary positions need no permutation: ours pair element i with i + head_dim/2, as transformers does.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "nn/config.h"

namespace ms::hf {

// One of our parameters; a vector has one row.
struct Part {
  std::string name;
  std::int64_t rows = 0, cols = 0;
  std::int64_t size() const { return rows * cols; }
};

// One tensor there: our parts one behind the other (matrices by rows), then transposed where GPT-2 keeps [in, out].
struct Mapped {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<Part> parts;
  bool transposed = false;
  std::int64_t blocks = 1;  // of each part: the first ones of all parts, then the second ones; by heads in GPT-NeoX
  bool is_f32 = false;      // whatever the type of others
};

// Two ways of a layer of a Llama: a tensor each for queries, keys, values, gate and up, or, as in Phi-3, one for the
// first three and one for the last two.
enum class Layout : std::uint8_t { separate, joined };
Layout export_layout(const nn::ModelConfig& model);
// The mark of a joined layer among the names of tensors.
inline constexpr std::string_view kJoinedName = ".self_attn.qkv_proj.weight";

// Every parameter of the model exactly once, in the order of the model. check_model() accepts the model.
std::vector<Mapped> tensors_of(const nn::ModelConfig& model, Layout layout);

// The prefix that a model with a head puts before all names but the head's; a model saved without its head leaves it
// out.
std::string prefix_of(const nn::ModelConfig& model);
std::string head_name(const nn::ModelConfig& model);
std::string embedding_name(const nn::ModelConfig& model);

// Tensors that old files carry and that hold no parameters: causal masks, rotary frequencies.
std::set<std::string> buffers_of(const nn::ModelConfig& model);

}  // namespace ms::hf
