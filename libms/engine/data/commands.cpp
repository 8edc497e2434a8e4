#include "data/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/print.h"
#include "base/text.h"
#include "data/check.h"
#include "data/describe.h"
#include "data/image_file.h"
#include "data/merge.h"
#include "data/note.h"
#include "data/part_file.h"
#include "data/token_writer.h"

namespace ms::data {
namespace {

constexpr std::int64_t kPreviewTokens = 60;
constexpr std::int64_t kPieceTokens = 1 << 16;  // how much of a document is in memory at once

// Calls use(tokens) for one piece of the range after another.
template <class Use>
void each_piece(const TokenFile& file, const TokenRange& range, const Use& use) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t begin = range.begin; begin < range.end; begin += kPieceTokens) {
    tokens.resize(static_cast<std::size_t>(std::min(kPieceTokens, range.end - begin)));
    file.read(begin, tokens);
    use(tokens, begin > range.begin);
  }
}

// The tokenizer that --tokenizer names, or the note; byte where there is neither.
std::unique_ptr<Tokenizer> tokenizer_for(const Args& args) {
  return args.has("tokenizer") ? make_tokenizer(args.get("tokenizer")) : tokenizer_of(args.get("PREFIX"), std::nullopt);
}

int run_info(const Args& args) {
  const TokenFile file(args.get("PREFIX"));
  const std::optional<Note> note = read_note(file.prefix());
  const std::optional<ImageFile> images = open_images(file, note, note ? note->patch : 0);
  const TokenFileSummary summary = summarize(file, note, kPreviewTokens);
  Json values{{"prefix", file.prefix()},
              {"dtype", to_string(file.type())},
              {"documents", file.num_documents()},
              {"sequences", file.num_sequences()},
              {"tokens", file.num_tokens()},
              {"targets", file.num_targets()},
              {"bytes", file.size_bytes()},
              {"longest_document_tokens", summary.longest_document_tokens},
              {"shortest_document_tokens", summary.shortest_document_tokens}};
  if (note) {
    const bool has_frames = note->chat_template.empty();
    values.update({{"tokenizer", note->tokenizer},
                   {"tokenizer_path", note->tokenizer_path.empty() ? Json() : Json(note->tokenizer_path)},
                   {"vocab_size", note->vocab_size},
                   {"eod", note->eod},
                   {"document_begin", has_frames ? Json(note->frame.begin) : Json()},
                   {"document_end", has_frames ? Json(note->frame.end) : Json()},
                   {"chat_template", note->chat_template.empty() ? Json() : Json(note->chat_template)},
                   {"image_patch", note->patch > 0 ? Json(note->patch) : Json()},
                   {"images", images ? Json(images->size()) : Json()},
                   {"packed_to", note->packed_to > 0 ? Json(note->packed_to) : Json()},
                   {"text_bytes", note->text_bytes},
                   {"source_files", note->source_files}});
  }
  values["preview"] = summary.preview ? Json(*summary.preview) : Json();
  // The preview may end inside a character of several bytes: dump() replaces it.
  if (args.has("json")) {
    Json document{{"schema", 1}};
    document.update(values);
    print_out("{}\n", document.dump(2));
    return 0;
  }
  for (const auto& [key, value] : values.items()) {
    if (!value.is_null()) print_out("{:<24}  {}\n", key, value.is_string() ? value.text() : value.dump());
  }
  return 0;
}

int run_show(const Args& args) {
  const TokenFile file(args.get("PREFIX"));
  const TokenRange document = file.document(args.get_int("document", 0, file.num_documents() - 1));
  if (args.has("tokens")) {
    each_piece(file, document, [](const auto& tokens, bool) { print_out("{}\n", fmt::join(tokens, "\n")); });
    return 0;
  }
  const auto tokenizer = tokenizer_for(args);
  each_piece(file, document,
             [&](const auto& tokens, bool goes_on) { write_bytes(tokenizer->decode(tokens, goes_on)); });
  return 0;
}

int run_decode(const Args& args) {
  const TokenFile file(args.get("PREFIX"));
  const auto tokenizer = tokenizer_for(args);
  std::optional<PartFile> output;
  if (args.has("output")) {
    output.emplace(args.get("output"));
    output->truncate(0);
  }
  bool ends_line = true;
  const auto write = [&](const std::string& text) {
    if (text.empty()) return;
    ends_line = text.ends_with('\n');
    if (output) {
      output->write(text.data(), text.size());
    } else {
      write_bytes(text);
    }
  };
  const std::string line = args.has("split-on") ? args.get("split-on") + "\n" : "";
  for (std::int64_t i = 0; i < file.num_documents(); ++i) {
    if (i > 0 && !line.empty()) write((ends_line ? "" : "\n") + line);
    each_piece(file, file.document(i),
               [&](const auto& tokens, bool goes_on) { write(tokenizer->decode(tokens, goes_on)); });
  }
  if (output) {
    output->sync();
    output->publish();
  }
  return 0;
}

// Kinds of what is wrong with a token file, as opposed to one that cannot be read.
constexpr std::string_view kUnsound[] = {"data.index", "data.token", "data.note", "data.vocab", "data.image"};

int run_verify(const Args& args) {
  std::optional<std::int64_t> vocab_size;
  if (args.has("vocab")) vocab_size = args.get_int("vocab", 1);
  try {
    const TokenFile file(args.get("PREFIX"));
    check_tokens(file, read_note(file.prefix()), vocab_size);
    print_out("{}: {}, {}, all sound\n", file.prefix(), plural(file.num_documents(), "document"),
              plural(file.num_tokens(), "token"));
  } catch (const Error& error) {
    // A file that is not sound is what was asked about, and no failure of the command.
    if (std::ranges::find(kUnsound, error.kind()) == std::end(kUnsound)) throw;
    print_err("ms-data: error: {}\n", error.message());
    return 1;
  }
  return 0;
}

int run_merge(const Args& args) {
  const std::string prefix = args.get("output");
  if (!args.has("force")) refuse_existing(prefix);
  const MergeReport report = merge(args.list("PREFIX"), prefix);
  print_out("{}: {}, {} from {}\n", prefix, plural(report.num_documents, "document"),
            plural(report.num_tokens, "token"), plural(args.list("PREFIX").size(), "token file"));
  if (report.num_empty_documents > 0) print_out("skipped {}\n", plural(report.num_empty_documents, "empty document"));
  return 0;
}

Positional prefix_positional() { return {"PREFIX", "The path of a token file without .bin and .idx."}; }

Option tokenizer_option() {
  return {
      "tokenizer", "NAME",
      "byte, or the path of a tokenizer.json. Default: the tokenizer in PREFIX.meta.json, or byte without that file."};
}

}  // namespace

Command info_command() {
  return {.name = "info",
          .summary = "show the type, sizes and beginning of a token file",
          .positionals = {prefix_positional()},
          .options = {{"json", "", "Print one JSON document instead of lines."}},
          .run = run_info};
}

Command show_command() {
  return {.name = "show",
          .summary = "print a document as text",
          .positionals = {prefix_positional()},
          .options = {{"document", "N", "The number of the document, from 0.", "0"},
                      {"tokens", "", "Print token ids, one per line, instead of text."},
                      tokenizer_option()},
          .run = run_show};
}

Command decode_command() {
  return {.name = "decode",
          .summary = "print all documents as text",
          .positionals = {prefix_positional()},
          .options =
              {{.name = "output", .value = "FILE", .doc = "Write to FILE instead of standard output.", .letter = 'o'},
               {"split-on", "LINE", "Write this line between documents. encode --split-on reads such a file."},
               tokenizer_option()},
          .run = run_decode};
}

Command verify_command() {
  return {
      .name = "verify",
      .summary = "check a token file for errors",
      .positionals = {prefix_positional()},
      .options = {{"vocab", "N",
                   "Require every token to be below N. Default: the vocabulary in PREFIX.meta.json, if there is one."}},
      .run = run_verify,
      .description =
          "Checks the index for consistency, the index, its loss mask and the size of PREFIX.bin against "
          "PREFIX.meta.json, every token against the vocabulary, and every image, which is decoded. Prints the first "
          "error with its place, and then "
          "exits with 1."};
}

Command merge_command() {
  return {.name = "merge",
          .summary = "join token files made with the same tokenizer",
          .positionals = {{.name = "PREFIX",
                           .doc = "Token files to join, without .bin and .idx. Their documents keep this order.",
                           .many = true}},
          .options = {{.name = "output",
                       .value = "PREFIX",
                       .doc = "The path to write, without .bin and .idx.",
                       .letter = 'o',
                       .required = true},
                      {"force", "", "Replace an existing token file."}},
          .run = run_merge};
}

}  // namespace ms::data
