#include "data/merge.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "data/image_file.h"
#include "data/note.h"
#include "data/token_file.h"
#include "data/token_writer.h"

namespace ms::data {
namespace {

constexpr std::int64_t kMergedTokens = 1 << 18;  // at a time

// Records that the documents are of different chat templates, or some of them plain text.
void mix_templates(const TokenFile& first, Note& common, const TokenFile& file, const Note& note) {
  if (note.chat_template == common.chat_template || common.chat_template == kMixedTemplates) return;
  const auto name = [](const Note& one) { return one.chat_template.empty() ? "none" : one.chat_template; };
  log::warn("data",
            "the chat template of {} is {}, and that of {} is {}: the merged file has documents of both formats",
            first.prefix(), name(common), file.prefix(), name(note));
  common.chat_template = kMixedTemplates;
}

// The note of the merged file, its counts still those of the first.
std::optional<Note> common_note(const std::vector<TokenFile>& files) {
  std::optional<Note> first = read_note(files[0].prefix());
  for (const TokenFile& file : files) {
    if (file.type() != files[0].type()) {
      throw user_error("data.merge",
                       fmt::format("{} holds {}, and {} holds {}", files[0].prefix(), to_string(files[0].type()),
                                   file.prefix(), to_string(file.type())),
                       "token files of one tokenizer have one type");
    }
    const std::optional<Note> note = read_note(file.prefix());
    if (first.has_value() != note.has_value()) {
      throw user_error("data.merge",
                       fmt::format("{} has no {}, and others have: it may be of another tokenizer",
                                   (note ? files[0] : file).prefix(), note_path("PREFIX")),
                       "encode its text again with ms-data");
    }
    if (note && note->packed_to > 0) {
      throw user_error("data.merge",
                       fmt::format("{} is packed to samples of {} tokens", file.prefix(), note->packed_to),
                       "merge the files that such files were made of, and pack the result");
    }
    if (first && first->patch != note->patch) {
      throw user_error("data.merge",
                       fmt::format("{} has images in patches of {} pixels a side, and {} of {} (0: it has none)",
                                   files[0].prefix(), first->patch, file.prefix(), note->patch),
                       "name each in data.train, or encode both with the same --image-size and --patch-size");
    }
    if (first && !first->same_tokenizer(*note)) {
      throw user_error(
          "data.merge",
          fmt::format("{} was written with the tokenizer {} of {} tokens, and {} with {} of {}", files[0].prefix(),
                      first->tokenizer, first->vocab_size, file.prefix(), note->tokenizer, note->vocab_size),
          "encode the text again with one tokenizer");
    }
    if (note) mix_templates(files[0], *first, file, *note);
  }
  return first;
}

void append_document(const TokenFile& file, const TokenRange& document, TokenWriter& writer) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t begin = document.begin; begin < document.end; begin += kMergedTokens) {
    tokens.resize(static_cast<std::size_t>(std::min(kMergedTokens, document.end - begin)));
    file.read(begin, tokens);
    const auto bad = std::ranges::find_if(tokens, [](std::int32_t id) { return id < 0; });
    if (bad != tokens.end()) {
      throw Error(
          "data.token", Blame::storage,
          fmt::format("{}.bin: the token at position {} is {}", file.prefix(), begin + (bad - tokens.begin()), *bad));
    }
    file.mark_ignored(begin, tokens);
    writer.append(tokens);
  }
  writer.end_document();
}

}  // namespace

MergeReport merge(const std::vector<std::string>& prefixes, const std::string& output) {
  MS_ASSERT(!prefixes.empty(), "nothing to merge");
  check_prefix(output);
  std::vector<TokenFile> files;
  for (const std::string& prefix : prefixes) files.emplace_back(prefix);
  std::optional<Note> note = common_note(files);
  if (files[0].type() != TokenType::u16 && files[0].type() != TokenType::i32) {
    throw user_error("data.merge", fmt::format("{} holds {}; only u16 and i32 are merged", files[0].prefix(),
                                               to_string(files[0].type())));
  }
  MergeReport report;
  TokenWriter writer(output, files[0].type());
  std::optional<ImageWriter> images_to;
  if (note && note->patch > 0) images_to.emplace(output, note->patch);
  for (const TokenFile& file : files) {
    if (const std::optional<ImageFile> images = open_images(file, note, note ? note->patch : 0))
      images_to->append(*images, {0, file.num_tokens()}, writer.num_tokens());
    for (std::int64_t i = 0; i < file.num_documents(); ++i) {
      if (const TokenRange document = file.document(i); document.size() > 0) {
        append_document(file, document, writer);
      } else {
        ++report.num_empty_documents;
      }
    }
  }
  report.num_documents = writer.num_documents();
  report.num_tokens = writer.num_tokens();
  if (note) {
    note->text_bytes = note->source_files = 0;
    for (const TokenFile& file : files) {
      const Note part = read_note(file.prefix()).value();
      note->text_bytes += part.text_bytes;
      note->source_files += part.source_files;
    }
    note->documents = report.num_documents;
    note->tokens = report.num_tokens;
  }
  if (images_to) images_to->commit(writer.num_tokens());
  writer.commit(note ? to_json(*note) : Json());
  return report;
}

}  // namespace ms::data
