// The files beside the weights of a Hugging Face model: tokenizer and how to generate. We do not read most of them;
// they travel with the model, so that what is exported can be used as what was imported.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace ms::hf {

// The folder beside checkpoints in which import leaves them, for a path of a checkpoint.
std::string companions_beside(const std::string& checkpoint);

// Copies those that `from` has into `to`, which is made if there are any. A `from` that is not there has none.
void copy_companions(const std::string& from, const std::string& to);

inline constexpr std::string_view kTokenizerFile = "tokenizer.json";

// The path of the tokenizer.json in `dir`; nullopt: it has none.
std::optional<std::string> tokenizer_in(const std::string& dir);

// The ids that end a text: eos_token_id of the generation_config.json in `dir`, or else of its config.json.
std::vector<std::int32_t> end_tokens(const std::string& dir);

// The added tokens in the text of a tokenizer.json, by id.
std::map<std::int32_t, std::string> added_tokens(std::string_view text);

// The members of the config.json in `dir` that name tokens, as it has them; without such a file, an empty object.
Json token_ids(const std::string& dir);

}  // namespace ms::hf
