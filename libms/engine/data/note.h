// The note beside a token file, PREFIX.meta.json: which tokenizer wrote it, and of what. ms-data writes it; whoever
// shows text, trains on the file or generates like it finds the tokenizer and the size of its vocabulary there. Token
// files of other programs have none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "data/tokenizer.h"

namespace ms::data {

inline constexpr std::string_view kMixedTemplates = "mixed";  // Note::chat_template of a merged file with several

// The patch token and the row token, the last ids of a vocabulary with images.
inline constexpr std::int64_t kImageTokens = 2;

struct Note {
  std::string tokenizer;              // "byte", or the name of its file
  std::string tokenizer_path;         // absolute; empty for byte
  std::string tokenizer_fingerprint;  // of the file; empty for byte
  std::string eod_token;              // the text of the token that ends a document, where --eod named it
  std::int64_t vocab_size = 0;
  std::int32_t eod = 0;
  Tokenizer::Frame frame;          // the tokens around each document; the end alone in notes of old releases
  std::string chat_template = {};  // its name, where documents are conversations: they have no frame
  std::int64_t patch = 0;          // pixels a side of the patches of its images (image_file.h); 0: it has none
  std::int64_t packed_to = 0;      // tokens of the samples that documents are packed to; 0: they are not
  std::int64_t documents = 0, tokens = 0, text_bytes = 0, source_files = 0;
  // TokenWriter records the loss mask; notes of old releases have neither of these.
  std::optional<std::int64_t> targets = {};
  std::string mask_hash = {};  // TokenFile::mask_hash()

  bool same_tokenizer(const Note& other) const {
    return tokenizer_fingerprint == other.tokenizer_fingerprint && text_vocab() == other.text_vocab() &&
           eod == other.eod && frame == other.frame;
  }
  // The ids of the tokenizer, without those of images.
  std::int64_t text_vocab() const { return vocab_size - (patch > 0 ? kImageTokens : 0); }
};

std::string note_path(const std::string& prefix);

// Returns what the tokenizer says of itself; counts are 0. `name` is what make_tokenizer() was given.
Note note_of(const Tokenizer& tokenizer, const std::string& name, const std::optional<std::string>& eod_token);
// All but what TokenWriter records.
Json to_json(const Note& note);

// nullopt: there is none. Error("data.note", storage): it is damaged, or of a newer format.
std::optional<Note> read_note(const std::string& prefix);

// The tokenizer that a note means. A file that is another one by now is used all the same, and warned of.
// Error("data.tokenizer", user) as of make_tokenizer().
std::unique_ptr<Tokenizer> tokenizer_of(const Note& note, const std::string& prefix);
// The tokenizer of the token file's note; without one, byte if `vocab_size`, where it is known, is that of byte;
// nullptr: none is known.
std::unique_ptr<Tokenizer> tokenizer_of(const std::string& prefix, std::optional<std::int64_t> vocab_size);

// Throws Error("data.vocab", user) where the token file's tokenizer has ids that a model of `vocab_size` does not have.
void check_vocab(const Note& note, const std::string& prefix, std::int64_t vocab_size);
// Throws Error("data.packed", user) where documents are packed to samples of another length than `seq`.
void check_packing(const Note& note, const std::string& prefix, std::int64_t seq);

}  // namespace ms::data
