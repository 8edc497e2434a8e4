#include "train/checkpoint/tokenizer_files.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/user_path.h"
#include "ckpt/directory.h"
#include "data/byte_alphabet.h"
#include "data/note.h"
#include "data/tokenizer_json.h"
#include "hf/companions.h"

namespace ms::train {
namespace {

constexpr std::size_t kMaxTokenizerBytes = std::size_t{256} << 20;

// The byte tokenizer as a tokenizer.json: byte-level BPE without merges, whose ids are the bytes.
std::string byte_tokenizer_json() {
  constexpr const char* kEnd = "<|endoftext|>";
  data::TokenizerSpec spec;
  for (int byte = 0; byte < data::ByteTokenizer::kEndOfDocument; ++byte) {
    const char one = static_cast<char>(byte);
    spec.vocab.push_back(data::to_alphabet({&one, 1}));
  }
  spec.vocab.emplace_back(kEnd);
  spec.added.push_back({.content = kEnd, .id = data::ByteTokenizer::kEndOfDocument, .special = true});
  return data::tokenizer_json(spec);
}

// The note of the data that the model is trained on first. nullopt: it has none, as data of other programs.
std::optional<data::Note> note_of_data(const Settings& settings) {
  if (settings.data.train.empty()) return std::nullopt;
  const std::string prefix = data::parse_source(settings.data.train.front()).prefix;
  if (std::optional<data::Note> note = data::read_note(prefix)) return note;
  const std::unique_ptr<data::Tokenizer> bytes = data::tokenizer_for_vocab(settings.model.vocab);
  return bytes ? std::optional(data::note_of(*bytes, std::string(bytes->name()), {})) : std::nullopt;
}

std::string fingerprint_of(const std::string& text) { return hash_hex(xxh3_64(text)); }

// The text of the note's tokenizer.json; nullopt: the file is gone, or is another one by now.
std::optional<std::string> text_of(const data::Note& note) {
  if (note.tokenizer_path.empty()) return byte_tokenizer_json();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(note.tokenizer_path, ignored)) return std::nullopt;
  std::string text = read_user_file(note.tokenizer_path, kMaxTokenizerBytes);
  return fingerprint_of(text) == note.tokenizer_fingerprint ? std::optional(std::move(text)) : std::nullopt;
}

// Without it, transformers takes the tokenizer of the model's family, which is another one.
std::string tokenizer_config(const std::string& end_text) {
  Json config{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  if (!end_text.empty()) config["eos_token"] = end_text;
  return config.dump(2) + "\n";
}

}  // namespace

TokenizerFiles tokenizer_files(const std::string& companions, const Settings& settings) {
  constexpr const char* kHint = "ms-ckpt export --files DIR copies the tokenizer in DIR";
  const std::optional<data::Note> note = note_of_data(settings);
  const std::optional<std::string> beside = hf::tokenizer_in(companions);
  if (!beside && !note) {
    log::warn("ckpt", "no tokenizer is known: neither {} nor the data that the model is trained on has one; {}",
              companions, kHint);
    return {};
  }
  std::optional<std::string> text;
  if (!beside) {
    text = text_of(*note);
    if (!text) {
      log::warn("ckpt", "{} has gone or changed since it encoded the data; {}", note->tokenizer_path, kHint);
      return {.files = {}, .end_of_document = note->eod};
    }
  } else {
    text = read_user_file(*beside, kMaxTokenizerBytes);
    const std::string fingerprint = fingerprint_of(*text);
    if (!note || note->tokenizer_fingerprint != fingerprint) {
      if (note)
        log::warn("ckpt", "{} is not the tokenizer that encoded the data: its fingerprint is {}, that of {} is {}",
                  *beside, fingerprint, note->tokenizer, note->tokenizer_fingerprint);
      if (hf::end_tokens(companions).empty())
        log::warn("ckpt",
                  "no token of {} is known to end a text: eos_token_id of a generation_config.json beside it is",
                  *beside);
      return {};
    }
  }
  TokenizerFiles made{.files = {}, .end_of_document = note->eod};
  const std::map<std::int32_t, std::string> added = hf::added_tokens(*text);
  const auto end = added.find(note->eod);
  made.files["tokenizer_config.json"] = tokenizer_config(end == added.end() ? "" : end->second);
  if (!beside) made.files[std::string(hf::kTokenizerFile)] = *std::move(text);
  return made;
}

void keep_tokenizer(const Settings& settings) {
  const std::optional<data::Note> note = note_of_data(settings);
  if (settings.checkpoint.dir.empty() || !note || note->tokenizer_path.empty()) return;
  const std::string to = hf::companions_beside(settings.checkpoint.dir + "/" + ckpt::step_name(0));
  TokenizerFiles made = tokenizer_files(to, settings);
  if (!made.files.contains(std::string(hf::kTokenizerFile))) return;
  made.files["config.json"] = Json{{"eos_token_id", note->eod}}.dump(2) + "\n";  // which export reads
  make_directories(to);
  for (const auto& [name, text] : made.files) {
    std::error_code ignored;
    const std::string path = to + "/" + name;
    if (!std::filesystem::exists(path, ignored)) write_file_atomic(path, text);
  }
}

KnownTokenizer tokenizer_of_checkpoint(const std::string& path, const Settings& settings, bool only_ids) {
  KnownTokenizer known;
  const std::string companions = hf::companions_beside(path);
  known.stops = hf::end_tokens(companions);
  if (const std::optional<std::string> beside = hf::tokenizer_in(companions); beside && !only_ids) {
    const std::string text = read_user_file(*beside, kMaxTokenizerBytes);
    const std::map<std::int32_t, std::string> added = hf::added_tokens(text);
    const auto end = std::ranges::find_if(known.stops, [&](std::int32_t id) { return added.contains(id); });
    std::optional<std::string> end_text;
    if (end != known.stops.end()) end_text = added.at(*end);
    // A prompt begins as the texts did that the model was trained on.
    const std::optional<data::Note> note = note_of_data(settings);
    const bool with_template = !note || note->tokenizer_fingerprint != fingerprint_of(text) ||
                               note->frame != data::Tokenizer::Frame{{}, {note->eod}};
    known.tokenizer = data::make_tokenizer(*beside, end_text, with_template);
  } else if (settings.data.train.empty()) {
    known.tokenizer = data::tokenizer_for_vocab(settings.model.vocab);
  } else {
    known.tokenizer = data::tokenizer_of(data::parse_source(settings.data.train.front()).prefix, settings.model.vocab);
  }
  if (known.stops.empty() && known.tokenizer) known.stops.push_back(known.tokenizer->end_of_document());
  return known;
}

}  // namespace ms::train
