// Token files of one tokenizer to one token file, for `ms-data merge`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ms::data {

struct MergeReport {
  std::int64_t num_documents = 0, num_tokens = 0;
  std::int64_t num_empty_documents = 0;  // of other writers, left out
};

// Writes all documents of the token files in this order, and a note with the sums of theirs, where they have notes.
// Warns where their chat templates differ. Error("data.merge", user): they are of different types or tokenizers, or
// some have no note; or of a type that is not written. Error("data.token", storage): a token is below 0. Those of
// TokenFile and TokenWriter.
MergeReport merge(const std::vector<std::string>& prefixes, const std::string& output);

}  // namespace ms::data
