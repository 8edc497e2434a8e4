// The weights in checkpoints of Megatron-LM's core, under the names of transformers' Llama and its relatives.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "foreign/checkpoint.h"
#include "hf/safetensors.h"
#include "nn/config.h"

namespace ms::hf {

inline constexpr std::string_view kMegatronEmbedding = "embedding.word_embeddings.weight";

// Splits what Megatron-LM joins: all layers of one kind of tensor, queries with keys and values by group, and the gate
// with the up projection. Rows that pad the vocabulary are left out. Tensors that are not known keep their names.
// Error("hf.import", user): sizes are not those of the model. `prefix` stands before all names.
std::map<std::string, TensorView> megatron_tensors(const std::shared_ptr<const foreign::Checkpoint>& checkpoint,
                                                   const std::string& prefix, const nn::ModelConfig& model);

}  // namespace ms::hf
