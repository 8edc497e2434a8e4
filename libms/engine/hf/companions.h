// The files beside the weights of a Hugging Face model: tokenizer and how to generate. We do not read most of them;
// they travel with the model, so that what is exported can be used as what was imported.
#pragma once

#include <string>

#include "base/json.h"

namespace ms::hf {

// The folder beside checkpoints in which import leaves them, for a path of a checkpoint.
std::string companions_beside(const std::string& checkpoint);

// Copies those that `from` has into `to`, which is made if there are any. A `from` that is not there has none.
void copy_companions(const std::string& from, const std::string& to);

// The members of the config.json in `dir` that name tokens, as it has them; without such a file, an empty object.
Json token_ids(const std::string& dir);

}  // namespace ms::hf
