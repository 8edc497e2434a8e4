// One step of a normalizer, pre-tokenizer, post-processor or decoder of a tokenizer.json, and the tables of those that
// are read.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "data/tokenizer_fields.h"
#include "data/tokenizer_json.h"

namespace ms::data {

// A step of a Sequence, or one that stands alone.
struct TokenizerStep {
  const Json& json;
  std::string path, type;
};

struct TokenizerStepRow {
  std::string_view type;
  void (*read)(const TokenizerStep& step, TokenizerSpec& spec);
};

std::span<const TokenizerStepRow> normalizer_rows();

// {"String": "a"} or {"Regex": "a"}; returns whether it is a pattern, and the text.
std::pair<bool, std::string> read_pattern(const Section& section);

}  // namespace ms::data
