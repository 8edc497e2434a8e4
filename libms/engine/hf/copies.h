// The copies of a model's weights that one checkpoint of another program holds: those that train, their moving average,
// moments under the same names. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nn/config.h"

namespace ms::hf {

// The naming of a copy: transformers', the same behind DeepSpeed's universal checkpoints, Megatron-LM's, or that of
// torchtitan's Llama.
enum class Naming : std::uint8_t { transformers, universal, universal_flat, megatron, titan };
std::string_view suffix_of(Naming naming);  // ".fp32.param"; empty: none

struct Copy {
  std::string prefix;          // before the names: "model." of a dict
  std::size_t tensors = 0;     // of the model
  bool is_complete = false;    // all of them
  bool has_embedding = false;  // or the head that is tied to it
};

// The copies of one naming but Megatron-LM's, sorted by prefix. A single tensor is not a copy: many modules have a
// norm.weight.
struct Copies {
  std::vector<Copy> copies;
  std::vector<std::optional<std::size_t>> copy_of;  // by name: the copy that has it
};
Copies find_copies(std::span<const std::string> names, Naming naming, const nn::ModelConfig& model);

// torchtitan's name of a tensor of Llama, as transformers has it; of another tensor: an unknown name.
std::string from_titan(const std::string& name);

// The name without what compilation, FSDP and activation checkpointing put around modules: "_orig_mod.".
std::string without_wrappers(const std::string& name);

// Selects the copy to import: the one of this prefix, the only one, the complete one if a single copy has a prefix of
// words such as "model", or the only complete one if no other has such a prefix. Error("hf.import", user): there is no
// such copy, or several may be meant.
std::size_t choose_copy(const std::vector<Copy>& copies, const std::optional<std::string>& prefix,
                        const std::string& path);

// Their prefixes, to print.
std::string list_of(const std::vector<Copy>& copies);

}  // namespace ms::hf
