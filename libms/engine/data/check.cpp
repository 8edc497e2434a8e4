#include "data/check.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.h"
#include "data/image_file.h"

namespace ms::data {
namespace {

constexpr std::int64_t kCheckedTokens = 1 << 18;  // at a time

void check_count(const TokenFile& file, const char* what, std::int64_t of_file, std::int64_t of_note) {
  if (of_file == of_note) return;
  throw Error("data.note", Blame::storage,
              fmt::format("{} has {} {}, and {}.idx has {}: one of them is damaged, or belongs to another file",
                          note_path(file.prefix()), of_note, what, file.prefix(), of_file));
}

void check_mask(const TokenFile& file, const Note& note) {
  if (note.targets) check_count(file, "targets", file.num_targets(), *note.targets);
  if (note.mask_hash.empty() || note.mask_hash == file.mask_hash()) return;
  throw Error("data.note", Blame::storage,
              fmt::format("the loss mask of {}.idx is not the one that {} records: one of them is damaged, or belongs "
                          "to another file",
                          file.prefix(), note_path(file.prefix())));
}

// Decodes every image, and compares its tokens with what it becomes.
void check_images(const TokenFile& file, const Note& note) {
  const std::optional<ImageFile> images = open_images(file, note, note.patch);
  if (!images) return;
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < images->size(); ++i) {
    images->image(i);
    const TokenRange range = (*images)[i].tokens();
    tokens.resize(static_cast<std::size_t>(range.size()));
    file.read(range.begin, tokens);
    const std::int64_t row = (*images)[i].cols + 1;
    for (std::int64_t at = 0; at < range.size(); ++at) {
      const std::int64_t expected = note.text_vocab() + (at % row == row - 1 ? 1 : 0);
      if (tokens[static_cast<std::size_t>(at)] == expected) continue;
      throw Error("data.token", Blame::storage,
                  fmt::format("{}.bin: the token at position {} is {}, expected {} of image {}", file.prefix(),
                              range.begin + at, tokens[static_cast<std::size_t>(at)], expected, i));
    }
  }
}

}  // namespace

void check_tokens(const TokenFile& file, const std::optional<Note>& note, std::optional<std::int64_t> vocab_size) {
  if (note) {
    check_count(file, "documents", file.num_documents(), note->documents);
    check_count(file, "tokens", file.num_tokens(), note->tokens);
    check_mask(file, *note);
    check_images(file, *note);
  }
  const std::int64_t end =
      vocab_size ? *vocab_size : (note ? note->vocab_size : std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1);
  std::vector<std::int32_t> tokens;
  for (std::int64_t begin = 0; begin < file.num_tokens(); begin += kCheckedTokens) {
    tokens.resize(static_cast<std::size_t>(std::min(kCheckedTokens, file.num_tokens() - begin)));
    file.read(begin, tokens);
    const auto bad = std::ranges::find_if(tokens, [&](std::int32_t id) { return id < 0 || id >= end; });
    if (bad == tokens.end()) continue;
    const std::int64_t at = begin + (bad - tokens.begin());
    throw Error(vocab_size ? "data.vocab" : "data.token", vocab_size && *bad >= 0 ? Blame::user : Blame::storage,
                fmt::format("{}.bin: the token at position {}, in document {}, is {}, expected 0 to {}", file.prefix(),
                            at, file.document_of(at), *bad, end - 1));
  }
  const bool has_frames = note && note->chat_template.empty() && note->packed_to == 0;
  for (std::int64_t i = 0; has_frames && i < file.num_documents(); ++i) {
    const TokenRange document = file.document(i);
    std::int32_t last = -1;
    if (document.size() > 0) file.read(document.end - 1, {&last, 1});
    if (last == note->eod) continue;
    throw Error("data.token", Blame::storage,
                fmt::format("{}: document {} does not end in token {}, the end of a document in {}", file.prefix(), i,
                            note->eod, note_path(file.prefix())));
  }
}

}  // namespace ms::data
