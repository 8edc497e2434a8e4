// The command train-tokenizer of ms-data.
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/print.h"
#include "base/progress.h"
#include "base/user_path.h"
#include "data/commands.h"
#include "data/document_reader.h"
#include "data/encode.h"
#include "data/json_lines.h"
#include "data/train_tokenizer.h"
#include "data/utf8.h"

namespace ms::data {
namespace {

constexpr std::int64_t kMaxVocab = std::int64_t{1} << 22;

// Adds the documents of all files; returns how many there are.
std::int64_t count_words(const std::vector<std::string>& files, const ReadOptions& options, WordCounter& counter) {
  SystemClock clock;
  std::int64_t total_bytes = 0, num_documents = 0;
  for (const std::string& path : files) total_bytes += file_size_bytes(path);
  Progress progress("read", total_bytes, "bytes", clock);
  DocumentReader reader(files, options, true);
  JsonLine json(options.fields.empty() ? std::vector<std::string>{"text"} : options.fields);
  TextBatch batch;
  std::string text, path;
  while (reader.next(batch)) {
    for (const TextItem& item : batch.items) {
      const std::string_view piece = std::string_view(batch.text).substr(item.begin, item.end - item.begin);
      if (item.kind == TextItem::Kind::file_begin) path = files[static_cast<std::size_t>(item.number)];
      if (item.kind == TextItem::Kind::file_skip) log::warn("data", "skipped {}: {}", path, item.problem);
      if (item.kind == TextItem::Kind::json) {
        if (const auto problem = json.read(piece, text))
          throw user_error("data.json", fmt::format("{}: {}", place_of(path, item), problem->what), problem->hint);
      }
      if (item.kind != TextItem::Kind::json && item.kind != TextItem::Kind::text) continue;
      counter.add(item.kind == TextItem::Kind::json ? std::string_view(text) : piece);
      ++num_documents;
    }
    progress.update(batch.input_bytes);
  }
  progress.finish();
  return num_documents;
}

std::vector<std::string> special_tokens(const Args& args) {
  std::vector<std::string> tokens = args.list("special");
  for (const std::string& token : tokens) {
    std::string valid;
    if (token.empty() || valid_utf8(token, valid) != token) {
      throw user_error(
          "cli.value",
          fmt::format("--special '{}' is not a token: it {}", token, token.empty() ? "is empty" : "is not UTF-8"),
          "without --special the tokenizer has the one special token <|endoftext|>");
    }
  }
  return tokens;
}

int run_train_tokenizer(const Args& args) {
  const std::string output = args.get("output");
  const std::int64_t vocab = args.get_int("vocab", 1, kMaxVocab);
  const std::vector<std::string> special = special_tokens(args);
  TokenizerSpec spec = untrained_tokenizer(args.get("pattern"));
  check_user_file(output);
  ReadOptions options;
  options.fields = args.list("field");
  const Inputs inputs = expand_inputs(args.list("FILE"), args.has("recursive"));
  options.named = inputs.named;
  WordCounter counter(spec);
  const std::int64_t num_documents = count_words(inputs.files, options, counter);
  if (counter.counts().empty()) throw user_error("data.input", "the files hold no text");

  SystemClock clock;
  Progress progress("merge", vocab, "tokens", clock);
  train_bpe(counter.counts(), vocab, special, spec, [&](std::int64_t tokens) { progress.update(tokens); });
  progress.finish();
  write_user_file(output, tokenizer_json(spec));
  const auto size = static_cast<std::int64_t>(spec.vocab.size());
  if (size < vocab) log::warn("data", "the text has no more than {} tokens to learn, of {}", size, vocab);
  print_out("{}: {} tokens from {} documents, {} different words\n", output, size, num_documents,
            counter.counts().size());
  return 0;
}

}  // namespace

Command train_tokenizer_command() {
  return {
      .name = "train-tokenizer",
      .summary = "train a byte-level BPE tokenizer on text",
      .positionals = {{.name = "FILE",
                       .doc = "Text or JSON, as encode reads them; each text file is a document.",
                       .many = true}},
      .options =
          {{.name = "vocab", .value = "N", .doc = "Size of the vocabulary, special tokens included.", .required = true},
           {.name = "output", .value = "FILE", .doc = "The tokenizer.json to write.", .letter = 'o', .required = true},
           {"pattern", "NAME",
            "Pattern that splits text into words: gpt2, llama3 (numbers in groups of up to three digits) or qwen2 "
            "(single digits, text normalized to NFC).",
            "llama3"},
           {.name = "special",
            .value = "TOKEN",
            .doc = "A special token. Special tokens have the ids from 0, in order.",
            .default_text = "<|endoftext|>",
            .many = true},
           {.name = "field",
            .value = "NAME",
            .doc = "The JSON field with the text (default: text). All files are JSON then.",
            .many = true},
           {.name = "recursive",
            .doc = "Read all files in directories and their subdirectories, sorted by path.",
            .letter = 'r'}},
      .run = run_train_tokenizer,
      .description =
          "The merges and ids equal those of Hugging Face's BpeTrainer for the same documents and pattern. All "
          "distinct words of the text are kept in memory."};
}

}  // namespace ms::data
