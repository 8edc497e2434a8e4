// The summary of a token file that `ms-data info` and `ms-data show` print. Everything here only reads the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/note.h"
#include "data/token_file.h"

namespace ms::data {

struct TokenFileSummary {
  std::int64_t longest_document_tokens = 0;
  std::int64_t shortest_document_tokens = 0;
  // The beginning as text, on one line (safe_line()), where the note's tokenizer is to be had; without a note, where
  // those tokens can be the byte tokenizer's.
  std::optional<std::string> preview;
};

// Reads the boundaries of all documents and the first `preview_tokens` tokens.
TokenFileSummary summarize(const TokenFile& file, const std::optional<Note>& note, std::int64_t preview_tokens);

}  // namespace ms::data
