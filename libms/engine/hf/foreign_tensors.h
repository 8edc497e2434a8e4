// The weights in checkpoints of other programs, under the names of Hugging Face.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "foreign/checkpoint.h"
#include "hf/safetensors.h"
#include "nn/config.h"

namespace ms::hf {

// Whether the directory or file is such a checkpoint.
bool is_foreign_checkpoint(const std::string& path);

struct ForeignOptions {
  std::optional<std::string> prefix = {};            // of the names; absent: choose_copy() selects it
  std::function<void(const std::string&)> say = {};  // which copy of the weights is taken, if there are several
};

// Names are those of transformers behind any prefix ("model." of a dict, "module."), those of torchtitan's Llama, whose
// rotary pairs are put in order, or those of Megatron-LM's core, whose tensors are split. What belongs to the optimizer
// is left out. Error("hf.import", user): there are no such names, or several copies of them. Error("ckpt.incomplete",
// storage): the save was cut off.
std::map<std::string, TensorView> foreign_tensors(const std::string& path, const nn::ModelConfig& model,
                                                  const ForeignOptions& options);

// Whether a tensor of this name does not belong to the optimizer, or to the state of the program.
bool is_of_model(const std::string& name);

// The whole tensor, of which the type is known. Error("ckpt.damaged", storage): parts of it are missing.
TensorView view_of(const std::shared_ptr<const foreign::Checkpoint>& checkpoint, const foreign::Tensor& tensor);

}  // namespace ms::hf
