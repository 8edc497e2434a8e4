#include "data/describe.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/escape.h"
#include "data/tokenizer.h"

namespace ms::data {

TokenFileSummary summarize(const TokenFile& file, const std::optional<Note>& note, std::int64_t preview_tokens) {
  TokenFileSummary summary;
  summary.shortest_document_tokens = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t i = 0; i < file.num_documents(); ++i) {
    const std::int64_t tokens = file.document(i).size();
    summary.longest_document_tokens = std::max(summary.longest_document_tokens, tokens);
    summary.shortest_document_tokens = std::min(summary.shortest_document_tokens, tokens);
  }
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min(preview_tokens, file.num_tokens())));
  file.read(0, tokens);
  if (note) {
    // The file of the tokenizer may be gone, or on another machine: no reason to say nothing.
    const bool is_there = note->tokenizer_path.empty() || ::access(note->tokenizer_path.c_str(), R_OK) == 0;
    if (is_there) summary.preview = safe_line(tokenizer_of(*note, file.prefix())->decode(tokens));
  } else if (std::ranges::all_of(tokens, [](std::int32_t id) { return id >= 0 && id < ByteTokenizer::kVocabSize; })) {
    summary.preview = safe_line(ByteTokenizer().decode(tokens));
  }
  return summary;
}

}  // namespace ms::data
