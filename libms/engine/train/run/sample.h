// The text that a model writes when its training ends: run.sample_tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "train/config.h"
#include "train/engine/engine.h"

namespace ms::train {

// The tokenizer that run.sample_tokens is shown with; nullptr where none are. Throws Error("data.tokenizer", user)
// where none is known.
std::unique_ptr<data::Tokenizer> sample_tokenizer(const Settings& settings);

// Continues `prompt`, a few tokens of the data. Collective over the world; there must be a tokenizer.
std::string sample(Engine& engine, const Settings& settings, const std::vector<std::int32_t>& prompt);

}  // namespace ms::train
