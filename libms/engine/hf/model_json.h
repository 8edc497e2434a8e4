// config.json of a Hugging Face model, both ways. What we do not compute is refused, never approximated: a model that
// loads is the model that was trained.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "nn/config.h"
#include "tensor/tensor.h"

namespace ms::hf {

// Error("hf.config", user), all problems at once: not JSON, another architecture, a key missing or out of range, or a
// setting that changes what the model computes and that we do not have. `path` is for the message.
nn::ModelConfig parse_config(std::string_view text, const std::string& path);

// The text of config.json; `dtype` is that of the weights beside it, `token_ids` as token_ids() found them.
// Error("hf.export", user) where the family there cannot say what the model is.
std::string config_json(const nn::ModelConfig& model, tensor::DType dtype, const Json& token_ids = Json::object());

// "[model]" as a configuration of ours has it.
std::string to_toml(const nn::ModelConfig& model);

}  // namespace ms::hf
