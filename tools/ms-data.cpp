// ms-data: text to token files, and what a token file holds. Users run it before a job; ms-train reads what it writes.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/cli.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/progress.h"
#include "data/describe.h"
#include "data/encode.h"

namespace {

using ms::Args;
using ms::data::TokenFile;

constexpr std::int64_t kPreviewTokens = 60;
constexpr std::int64_t kPieceTokens = 1 << 16;  // how much of a document is in memory at once

int encode(const Args& args) {
  std::vector<std::string> inputs = args.list("FILE");
  if (args.has("files-from")) {
    for (std::string& path : ms::data::read_list(args.get("files-from"))) inputs.push_back(std::move(path));
  }
  if (inputs.empty())
    throw ms::user_error("data.input", "there is no file to encode", "name files, or give --files-from");
  if (!args.has("output")) throw ms::user_error("data.output", "--output PREFIX is missing");
  const auto tokenizer = ms::data::make_tokenizer(args.get("tokenizer"));
  const std::vector<std::string> files = ms::data::expand_inputs(inputs, args.has("recursive"));

  ms::SystemClock clock;
  std::optional<ms::Progress> progress;
  ms::data::EncodeOptions options;
  if (args.has("split-on")) options.split_on = args.get("split-on");
  options.progress = [&](std::int64_t done_bytes, std::int64_t total_bytes) {
    if (!progress) progress.emplace("encode", total_bytes, "bytes", clock);
    progress->update(done_bytes);
  };
  const std::string prefix = args.get("output");
  ms::data::TokenWriter writer(prefix, ms::data::token_type_for_vocab(tokenizer->vocab_size()));
  const ms::data::EncodeReport report = ms::data::encode_files(files, *tokenizer, options, writer);
  writer.commit();
  if (progress) progress->finish();
  fmt::print("{}: {} documents, {} tokens from {} files\n", prefix, writer.num_documents(), writer.num_tokens(),
             report.num_files);
  if (report.num_binary_files > 0) fmt::print("skipped {} binary files\n", report.num_binary_files);
  if (report.num_empty_files > 0) fmt::print("skipped {} empty files\n", report.num_empty_files);
  return 0;
}

int info(const Args& args) {
  const TokenFile file(args.get("PREFIX"));
  const ms::data::TokenFileSummary summary = ms::data::summarize(file, kPreviewTokens);
  nlohmann::ordered_json values{{"schema", 1},
                                {"prefix", file.prefix()},
                                {"dtype", ms::data::to_string(file.type())},
                                {"documents", file.num_documents()},
                                {"sequences", file.num_sequences()},
                                {"tokens", file.num_tokens()},
                                {"bytes", file.size_bytes()},
                                {"longest_document_tokens", summary.longest_document_tokens},
                                {"shortest_document_tokens", summary.shortest_document_tokens},
                                {"preview", nullptr}};
  if (summary.preview) values["preview"] = *summary.preview;
  // The preview may end inside a character of several bytes: that one is replaced.
  const auto replace = nlohmann::json::error_handler_t::replace;
  if (args.has("json")) {
    fmt::print("{}\n", values.dump(2, ' ', false, replace));
    return 0;
  }
  values.erase("schema");
  for (const auto& [key, value] : values.items()) {
    if (!value.is_null()) fmt::print("{:<24}  {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return 0;
}

int show(const Args& args) {
  const TokenFile file(args.get("PREFIX"));
  const std::int64_t number = args.get_int("document", 0, file.num_documents() - 1);
  const ms::data::TokenRange document = file.document(number);
  const ms::data::ByteTokenizer tokenizer;
  std::vector<std::int32_t> tokens;
  for (std::int64_t begin = document.begin; begin < document.end; begin += kPieceTokens) {
    tokens.resize(static_cast<std::size_t>(std::min(kPieceTokens, document.end - begin)));
    file.read(begin, tokens);
    if (args.has("tokens")) {
      fmt::print("{}\n", fmt::join(tokens, "\n"));
    } else {
      const std::string text = tokenizer.decode(tokens);
      std::fwrite(text.data(), 1, text.size(), stdout);  // run_tool checks that standard output took it all
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const ms::Positional prefix{.name = "PREFIX", .doc = "The path of a token file without .bin and .idx."};
  const ms::Tool tool{
      .name = "ms-data",
      .summary = "turn text into token files, and show what they hold",
      .commands = {{.name = "encode",
                    .summary = "write text files as tokens to PREFIX.bin and PREFIX.idx",
                    .positionals = {{.name = "FILE",
                                     .doc = "Text files; gzip-compressed ones are read as what they hold.",
                                     .required = false,
                                     .many = true}},
                    .options = {{.name = "tokenizer",
                                 .value = "NAME",
                                 .doc = "The tokenizer; byte is the only one.",
                                 .default_text = "byte"},
                                {.name = "output",
                                 .value = "PREFIX",
                                 .doc = "The path to write, without .bin and .idx.",
                                 .letter = 'o'},
                                {.name = "files-from",
                                 .value = "LIST",
                                 .doc = "A file that names more input files, one a line; - for standard input."},
                                {.name = "split-on",
                                 .value = "LINE",
                                 .doc = "A line that is exactly this ends a document; otherwise each file is one."},
                                {.name = "recursive",
                                 .doc = "Read the files in and below directories, sorted by path.",
                                 .letter = 'r'}},
                    .run = encode},
                   {.name = "info",
                    .summary = "show the type, the sizes and the beginning of a token file",
                    .positionals = {prefix},
                    .options = {{.name = "json", .doc = "One JSON document instead of lines."}},
                    .run = info},
                   {.name = "show",
                    .summary = "print a document as text",
                    .positionals = {prefix},
                    .options = {{.name = "document",
                                 .value = "N",
                                 .doc = "The number of the document, from 0.",
                                 .default_text = "0"},
                                {.name = "tokens", .doc = "Print token ids, one a line, instead of text."}},
                    .run = show}},
      .description =
          "A token file is two files, PREFIX.bin and PREFIX.idx, in the format that Megatron-LM reads and writes. "
          "ms-train reads them by the prefixes that [data] in ms.toml(5) names.",
      .examples = {{.command = "ms-data encode --split-on % --output fortunes /usr/share/games/fortunes/computers",
                    .doc = "Make every fortune a document:"},
                   {.command = "ms-data show fortunes --document 3", .doc = "Read one of them back:"}},
      .see_also = {"ms-train(1)", "ms.toml(5)"}};
  return ms::run_tool(tool, argc, argv);
}
