// The weights in checkpoints of other programs, under the names of Hugging Face.
#pragma once

#include <map>
#include <string>

#include "hf/safetensors.h"
#include "nn/config.h"

namespace ms::hf {

// Whether the directory or file is such a checkpoint.
bool is_foreign_checkpoint(const std::string& path);

// Names are those of transformers behind any prefix ("model." of a dict, "module."), or those of torchtitan's Llama,
// whose rotary pairs are put in order. What belongs to the optimizer is left out.
// Error("hf.import", user): there are no such names. Error("ckpt.incomplete", storage): the save was cut off.
std::map<std::string, TensorView> foreign_tensors(const std::string& path, const nn::ModelConfig& model);

}  // namespace ms::hf
