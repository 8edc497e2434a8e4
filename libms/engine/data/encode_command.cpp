// The command encode of ms-data.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/print.h"
#include "base/progress.h"
#include "base/text.h"
#include "data/chat_encoder.h"
#include "data/commands.h"
#include "data/encode.h"
#include "data/image_encoder.h"
#include "data/image_file.h"
#include "data/token_file.h"

namespace ms::data {
namespace {

constexpr int kMaxWorkers = 1024;
constexpr std::size_t kImageBatch = 32;  // lines, whose images are in memory until they are written

void refuse_both(const Args& args, const char* one, const char* other) {
  if (!args.has(one) || !args.has(other)) return;
  throw user_error("cli.value", fmt::format("--{} and --{} contradict each other", one, other),
                   "leave one of them out");
}

EncodeOptions options_of(const Args& args) {
  refuse_both(args, "split-on", "by-line");
  refuse_both(args, "field", "json-as-text");
  for (const char* other : {"field", "json-as-text", "split-on", "by-line", "eod", "no-template"})
    refuse_both(args, "chat-template", other);
  if (args.has("train-on") && !args.has("chat-template"))
    throw user_error("cli.value", "--train-on is for conversations", "name their --chat-template as well");
  EncodeOptions options;
  if (args.has("split-on")) options.read.split_on = args.get("split-on");
  options.read.by_line = args.has("by-line");
  options.read.json_as_text = args.has("json-as-text");
  options.read.fields = args.list("field");
  options.skip_bad_lines = args.has("skip-bad-lines");
  options.replace = args.has("force");
  if (args.has("workers")) options.workers = static_cast<int>(args.get_int("workers", 1, kMaxWorkers));
  return options;
}

// The encoder of --chat-template; nullopt without it.
std::optional<ChatEncoder> chat_encoder_of(const Args& args, const Tokenizer& tokenizer) {
  if (!args.has("chat-template")) return std::nullopt;
  const std::string name = args.get("chat-template"),
                    train_on = args.has("train-on") ? args.get("train-on") : "assistant";
  if (train_on != "assistant" && train_on != "all")
    throw user_error("cli.value", fmt::format("--train-on: '{}' is neither assistant nor all", train_on));
  const ChatTemplate& format = name == "auto" ? chat_template_beside(args.get("tokenizer")) : chat_template(name);
  return std::optional<ChatEncoder>(std::in_place, format, tokenizer, train_on == "all");
}

// The encoder of --image-size; nullopt without it.
std::optional<ImageEncoder> image_encoder_of(const Args& args, const Tokenizer& tokenizer) {
  if (!args.has("image-size")) {
    for (const char* other : {"patch-size", "image-field", "image-dir"}) {
      if (args.has(other))
        throw user_error("cli.value", fmt::format("--{} is for images", other), "give their --image-size as well");
    }
    return std::nullopt;
  }
  for (const char* other : {"chat-template", "json-as-text", "split-on", "by-line"})
    refuse_both(args, "image-size", other);
  ImageOptions options;
  if (args.has("patch-size")) options.patch = args.get_int("patch-size", 1, kMaxPatch);
  options.longest = args.get_int("image-size", options.patch, image::kMaxSide);
  if (options.longest % options.patch != 0) {
    throw user_error("cli.value", fmt::format("--image-size: {} is no multiple of --patch-size, which is {}",
                                              options.longest, options.patch));
  }
  if (args.has("image-field")) options.field = args.get("image-field");
  if (args.has("image-dir")) options.directory = args.get("image-dir");
  return std::optional<ImageEncoder>(std::in_place, options, tokenizer);
}

std::string template_names() {
  std::string text;
  for (const ChatTemplate& one : chat_templates()) text += fmt::format("{} ({}), ", one.name, one.models);
  return text;
}

int run_encode(const Args& args) {
  std::vector<std::string> inputs = args.list("FILE");
  if (args.has("files-from")) {
    for (std::string& path : read_list(args.get("files-from"))) inputs.push_back(std::move(path));
  }
  if (inputs.empty()) throw user_error("data.input", "no file to encode", "name files, or give --files-from");
  const std::string prefix = args.get("output");
  EncodeOptions options = options_of(args);
  std::optional<std::string> eod_token;
  if (args.has("eod")) eod_token = args.get("eod");
  const auto tokenizer = make_tokenizer(args.get("tokenizer"), eod_token, !args.has("no-template"));
  const std::optional<ChatEncoder> chat = chat_encoder_of(args, *tokenizer);
  Note note = note_of(*tokenizer, args.get("tokenizer"), eod_token);
  if (chat) {
    options.chat = &*chat;
    options.read.fields = {"messages"};  // all files are JSON
    note.chat_template = chat->format().name;
  }
  const std::optional<ImageEncoder> images = image_encoder_of(args, *tokenizer);
  if (images) {
    options.images = &*images;
    if (options.read.fields.empty()) options.read.fields = {"text"};  // all files are JSON, or tar archives
    options.read.image_field = images->options().field;
    options.read.batch_items = kImageBatch;
    note.patch = images->options().patch;
    note.vocab_size += kImageTokens;
  }
  const Inputs expanded = expand_inputs(inputs, args.has("recursive"));
  options.read.named = expanded.named;

  SystemClock clock;
  std::optional<Progress> progress;
  options.progress = [&](std::int64_t done_bytes, std::int64_t total_bytes) {
    if (!progress) progress.emplace("encode", total_bytes, "bytes", clock);
    progress->update(done_bytes);
  };
  const EncodeReport report = encode(prefix, expanded.files, *tokenizer, note, options);
  if (progress) progress->finish();
  if (options.read.split_on && report.num_splits == 0)
    log::warn("data", "no line is '{}', the line of --split-on: each file is one document", *options.read.split_on);
  print_out("{}: {}, {} from {}\n", prefix, plural(report.num_documents, "document"),
            plural(report.num_tokens, "token"), plural(report.num_files, "file"));
  if (images) {
    print_out("{} in patches of {} pixels a side: train with model.patch_size = {} and model.vocab = {}\n",
              plural(report.num_images, "image"), note.patch, note.patch, note.vocab_size);
  }
  if (chat) {
    print_out("{} of {} are targets of the loss, with the chat template {}\n", TokenFile(prefix).num_targets(),
              plural(report.num_tokens, "token"), chat->format().name);
    if (report.num_with_control > 0) {
      print_out("{} with the text of a control token in a message, which became that token\n",
                plural(report.num_with_control, "conversation"));
    }
  }
  if (report.num_binary_files > 0) print_out("skipped {}\n", plural(report.num_binary_files, "binary file"));
  if (report.num_empty_files > 0) print_out("skipped {}\n", plural(report.num_empty_files, "empty file"));
  if (report.num_empty_documents > 0) print_out("skipped {}\n", plural(report.num_empty_documents, "empty document"));
  if (report.num_bad_lines > 0) print_out("skipped {}\n", plural(report.num_bad_lines, "bad line"));
  if (report.num_not_utf8 > 0) {
    print_out("U+FFFD stands for bytes that are not UTF-8 in {}; iconv(1) mends text of another encoding\n",
              plural(report.num_not_utf8, "document"));
  }
  return 0;
}

}  // namespace

Command encode_command() {
  return {
      .name = "encode",
      .summary = "encode text files to PREFIX.bin and PREFIX.idx",
      .positionals =
          {{.name = "FILE",
            .doc = "Text, JSON Lines or a JSON array of objects, which may be compressed with gzip, zstd, xz or "
                   "bzip2; - for standard input.",
            .required = false,
            .many = true}},
      .options =
          {{"tokenizer", "NAME", "The tokenizer: byte, or the path of a Hugging Face tokenizer.json.", "byte"},
           {"eod", "TOKEN",
            "The special token of tokenizer.json that ends a document. Default: the first that exists of "
            "<|endoftext|>, <|end_of_text|>, <|eot_id|>, </s> and <eos>."},
           {"no-template", "",
            "Leave out the special tokens that the template of tokenizer.json puts around each text, such as Llama 3's "
            "<|begin_of_text|>. Default: add them, and end each document with the token of --eod in any case. ms-data "
            "info prints which tokens stand around documents."},
           {.name = "output",
            .value = "PREFIX",
            .doc = "The path to write, without .bin and .idx.",
            .letter = 'o',
            .required = true},
           {"files-from", "LIST", "Read the names of more input files from LIST, one per line; - for standard input."},
           {"split-on", "LINE", "End a document at each line that equals LINE. Default: each text file is a document."},
           {"by-line", "", "Make each line of a text file a document, without its newline."},
           {.name = "field",
            .value = "NAME",
            .doc = "The JSON field with the text, such as text, or meta.body for a nested field. If given several "
                   "times, the texts are joined with a newline. All files are JSON then. Default: text. Without this "
                   "option, files that are named .jsonl or .ndjson, or begin with { or [, are JSON.",
            .many = true},
           {"chat-template", "NAME",
            "Encode conversations: objects with messages, each of a role and content, as for OpenAI's API, or "
            "conversations, each of from and value, as of ShareGPT. Render them with this chat template: " +
                template_names() +
                "or auto, which recognises the template in chat_template.jinja or tokenizer_config.json beside the "
                "tokenizer.json, if it is one of these. All of them are rendered without a prompt to generate."},
           {"train-on", "assistant|all",
            "Which tokens of a conversation the loss counts: assistant, the contents of the assistant's messages with "
            "the token that ends each, or all. Default: assistant."},
           {"image-size", "N",
            "Encode images with text: objects with image, a path, an image in base64, a data URL, or an array of "
            "these, and text. JPEG and PNG are read. An image stands where the text has <image>; without that, "
            "images are before the text. Files may be tar archives, as WebDataset and img2dataset write them: the "
            ".jpg, .jpeg and .png with the same name are the images, and the text is in .txt or, without one, in "
            ".json. "
            "Shrink an image whose longer side has more than N pixels to N. Images are "
            "kept in PREFIX.images."},
           {"patch-size", "P",
            "Cut images into patches of P x P pixels, one token each, with one more token behind each row of patches. "
            "Default: 16. N is a multiple of P."},
           {"image-field", "NAME", "The JSON field with the images. Default: image."},
           {"image-dir", "DIR", "The directory of relative paths of images. Default: the working directory."},
           {"skip-bad-lines", "",
            "Skip lines, or elements of an array, that are not JSON or lack the field, whose images are missing or "
            "damaged, and conversations that the chat template does not render. Print the first three, and how many "
            "were skipped. Default: the first one is an "
            "error."},
           {"json-as-text", "", "Encode JSON as plain text, with braces and keys."},
           {"workers", "N",
            "Number of encoding threads (default: the number of cores, at most 64). The result does not depend on it."},
           {"force", "", "Replace an existing token file. Default: an existing one is an error."},
           {.name = "recursive",
            .doc = "Read all files in directories and their subdirectories, sorted by path. Those that are not text "
                   "are skipped and counted; one that is named is an error.",
            .letter = 'r'}},
      .run = run_encode,
      .description =
          "An interrupted command resumes if it is repeated with the same files and options, unless it encodes images. "
          "Unfinished work is in "
          "PREFIX.bin.part, PREFIX.sequences.part and PREFIX.encode.part. PREFIX.meta.json records the tokenizer, for "
          "all programs that read the tokens."};
}

}  // namespace ms::data
