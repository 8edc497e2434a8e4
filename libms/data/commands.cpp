#include "data/commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/print.h"
#include "base/progress.h"
#include "data/describe.h"
#include "data/encode.h"

namespace ms::data {
namespace {

constexpr std::int64_t kPreviewTokens = 60;
constexpr std::int64_t kPieceTokens = 1 << 16;  // how much of a document is in memory at once

// A token file may be what others train on.
void refuse_existing(const std::string& prefix) {
  for (const char* suffix : {".bin", ".idx"}) {
    if (access((prefix + suffix).c_str(), F_OK) != 0) continue;
    throw user_error("data.output", fmt::format("{}{} is there already", prefix, suffix),
                     "name another --output, or replace it with --force");
  }
}

int run_encode(const Args& args) {
  std::vector<std::string> inputs = args.list("FILE");
  if (args.has("files-from")) {
    for (std::string& path : read_list(args.get("files-from"))) inputs.push_back(std::move(path));
  }
  if (inputs.empty()) throw user_error("data.input", "there is no file to encode", "name files, or give --files-from");
  if (!args.has("output")) throw user_error("data.output", "--output PREFIX is missing");
  const std::string prefix = args.get("output");
  if (!args.has("force")) refuse_existing(prefix);
  const auto tokenizer = make_tokenizer(args.get("tokenizer"));
  const std::vector<std::string> files = expand_inputs(inputs, args.has("recursive"));

  SystemClock clock;
  std::optional<Progress> progress;
  EncodeOptions options;
  if (args.has("split-on")) options.split_on = args.get("split-on");
  options.json_as_text = args.has("json-as-text");
  options.progress = [&](std::int64_t done_bytes, std::int64_t total_bytes) {
    if (!progress) progress.emplace("encode", total_bytes, "bytes", clock);
    progress->update(done_bytes);
  };
  TokenWriter writer(prefix, token_type_for_vocab(tokenizer->vocab_size()));
  const EncodeReport report = encode_files(files, *tokenizer, options, writer);
  writer.commit();
  if (progress) progress->finish();
  if (options.split_on && report.num_splits == 0)
    log::warn("data", "no line is '{}', as --split-on says: each file is one document", *options.split_on);
  print_out("{}: {} documents, {} tokens from {} files\n", prefix, writer.num_documents(), writer.num_tokens(),
            report.num_files);
  if (report.num_binary_files > 0) print_out("skipped {} binary files\n", report.num_binary_files);
  if (report.num_empty_files > 0) print_out("skipped {} empty files\n", report.num_empty_files);
  return 0;
}

int run_info(const Args& args) {
  const TokenFile file(args.get("PREFIX"));
  const TokenFileSummary summary = summarize(file, kPreviewTokens);
  Json values{{"prefix", file.prefix()},
              {"dtype", to_string(file.type())},
              {"documents", file.num_documents()},
              {"sequences", file.num_sequences()},
              {"tokens", file.num_tokens()},
              {"bytes", file.size_bytes()},
              {"longest_document_tokens", summary.longest_document_tokens},
              {"shortest_document_tokens", summary.shortest_document_tokens},
              {"preview", nullptr}};
  if (summary.preview) values["preview"] = *summary.preview;
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
  const std::int64_t number = args.get_int("document", 0, file.num_documents() - 1);
  const TokenRange document = file.document(number);
  const ByteTokenizer tokenizer;
  std::vector<std::int32_t> tokens;
  for (std::int64_t begin = document.begin; begin < document.end; begin += kPieceTokens) {
    tokens.resize(static_cast<std::size_t>(std::min(kPieceTokens, document.end - begin)));
    file.read(begin, tokens);
    if (args.has("tokens")) {
      print_out("{}\n", fmt::join(tokens, "\n"));
    } else {
      const std::string text = tokenizer.decode(tokens);
      write_bytes(text);
    }
  }
  return 0;
}

Positional prefix_positional() { return {.name = "PREFIX", .doc = "The path of a token file without .bin and .idx."}; }

}  // namespace

Command encode_command() {
  return {
      .name = "encode",
      .summary = "write text files as tokens to PREFIX.bin and PREFIX.idx",
      .positionals = {{.name = "FILE",
                       .doc = "Text files; gzip-compressed ones are read as what they hold; - for standard input.",
                       .required = false,
                       .many = true}},
      .options =
          {{.name = "tokenizer",
            .value = "NAME",
            .doc = "The tokenizer; byte is the only one.",
            .default_text = "byte"},
           {.name = "output", .value = "PREFIX", .doc = "The path to write, without .bin and .idx.", .letter = 'o'},
           {.name = "files-from",
            .value = "LIST",
            .doc = "A file that names more input files, one a line; - for standard input."},
           {.name = "split-on",
            .value = "LINE",
            .doc = "A line that is exactly this ends a document; otherwise each file is one."},
           {.name = "json-as-text",
            .doc = "Encodes JSON Lines (a JSON object on each line) as the text that they are, braces and keys "
                   "included; otherwise such files are refused."},
           {.name = "force", .doc = "Replaces a token file that is there; otherwise it stays, and nothing is done."},
           {.name = "recursive", .doc = "Read the files in and below directories, sorted by path.", .letter = 'r'}},
      .run = run_encode};
}

Command info_command() {
  return {.name = "info",
          .summary = "show the type, the sizes and the beginning of a token file",
          .positionals = {prefix_positional()},
          .options = {{.name = "json", .doc = "One JSON document instead of lines."}},
          .run = run_info};
}

Command show_command() {
  return {
      .name = "show",
      .summary = "print a document as text",
      .positionals = {prefix_positional()},
      .options = {{.name = "document", .value = "N", .doc = "The number of the document, from 0.", .default_text = "0"},
                  {.name = "tokens", .doc = "Print token ids, one a line, instead of text."}},
      .run = run_show};
}

}  // namespace ms::data
