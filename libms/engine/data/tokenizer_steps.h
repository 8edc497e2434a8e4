// The steps of a tokenizer.json around its model: normalizers, pre-tokenizers, post-processors and decoders.
#pragma once

#include "data/tokenizer_fields.h"
#include "data/tokenizer_json.h"

namespace ms::data {

// Reads all four into `spec`. Error("data.tokenizer", user) names the step that is not known, and those that are.
void read_steps(const Section& file, TokenizerSpec& spec);

}  // namespace ms::data
