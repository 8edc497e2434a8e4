// A check of all of a token file, for `ms-data verify`. What opening one checks, its index against itself and against
// the size of .bin, is done before.
#pragma once

#include <cstdint>
#include <optional>

#include "data/note.h"
#include "data/token_file.h"

namespace ms::data {

// Reads all tokens: none is below 0, all are below `vocab_size`, or else below the note's; and the note's counts,
// loss mask and end of a document are the file's. Throws for the first that is wrong, which it names:
// Error("data.vocab", user) where `vocab_size` says so, else Error("data.token" or "data.note", storage).
void check_tokens(const TokenFile& file, const std::optional<Note>& note, std::optional<std::int64_t> vocab_size);

}  // namespace ms::data
