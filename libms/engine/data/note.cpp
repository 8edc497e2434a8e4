#include "data/note.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/user_path.h"
#include "data/cached_object.h"

namespace ms::data {
namespace {

constexpr int kNoteSchema = 1;
constexpr std::size_t kMaxNoteBytes = std::size_t{1} << 20;

// A tokenizer whose decode() also takes the tokens of images, which follow its own: a run of them is "<image>".
class ImageTokenizer final : public Tokenizer {
 public:
  explicit ImageTokenizer(std::unique_ptr<Tokenizer> text) : text_(std::move(text)) {}

  std::string_view name() const override { return text_->name(); }
  std::int64_t vocab_size() const override { return text_->vocab_size(); }
  std::int32_t end_of_document() const override { return text_->end_of_document(); }
  Frame frame() const override { return text_->frame(); }
  bool takes_pieces() const override { return text_->takes_pieces(); }
  std::string fingerprint() const override { return text_->fingerprint(); }
  std::vector<std::string> special_tokens() const override { return text_->special_tokens(); }
  bool encode(std::string_view text, std::vector<std::int32_t>& tokens) const override {
    return text_->encode(text, tokens);
  }
  std::string decode(std::span<const std::int32_t> tokens, bool goes_on) const override {
    const auto is_of_image = [this](std::int32_t id) { return id >= vocab_size() && id < vocab_size() + kImageTokens; };
    std::string decoded;
    for (auto at = tokens.begin(); at != tokens.end();) {
      const bool is_image = is_of_image(*at);
      const auto end = std::find_if(at, tokens.end(), [&](std::int32_t id) { return is_of_image(id) != is_image; });
      decoded += is_image ? "<image>" : text_->decode({at, end}, goes_on || at != tokens.begin());
      at = end;
    }
    return decoded;
  }

 private:
  std::unique_ptr<Tokenizer> text_;
};

std::unique_ptr<Tokenizer> with_images(std::unique_ptr<Tokenizer> tokenizer, const Note& note) {
  return note.patch == 0 ? std::move(tokenizer) : std::make_unique<ImageTokenizer>(std::move(tokenizer));
}

}  // namespace

std::string note_path(const std::string& prefix) { return prefix + ".meta.json"; }

Note note_of(const Tokenizer& tokenizer, const std::string& name, const std::optional<std::string>& eod_token) {
  Note note{.tokenizer = name,
            .tokenizer_path = {},
            .tokenizer_fingerprint = tokenizer.fingerprint(),
            .eod_token = eod_token.value_or(""),
            .vocab_size = tokenizer.vocab_size(),
            .eod = tokenizer.end_of_document(),
            .frame = tokenizer.frame()};
  if (!note.tokenizer_fingerprint.empty()) {
    const std::filesystem::path path = std::filesystem::absolute(name).lexically_normal();
    note.tokenizer = path.filename();
    note.tokenizer_path = path;
  }
  return note;
}

Json to_json(const Note& note) {
  Json json{{"schema", kNoteSchema},
            {"tokenizer", note.tokenizer},
            {"tokenizer_path", note.tokenizer_path},
            {"tokenizer_fingerprint", note.tokenizer_fingerprint},
            {"vocab_size", note.vocab_size},
            {"eod", note.eod},
            {"document_begin", note.frame.begin},
            {"document_end", note.frame.end},
            {"documents", note.documents},
            {"tokens", note.tokens},
            {"text_bytes", note.text_bytes},
            {"source_files", note.source_files}};
  if (!note.eod_token.empty()) json["eod_token"] = note.eod_token;
  if (!note.chat_template.empty()) json["chat_template"] = note.chat_template;
  if (note.patch > 0) json["image_patch"] = note.patch;
  if (note.packed_to > 0) json["packed_to"] = note.packed_to;
  return json;
}

std::optional<Note> read_note(const std::string& prefix) {
  std::string path = note_path(prefix);
  if (is_object(path)) {
    const std::optional<std::string> copy = object_copy(path, true);
    if (!copy) return std::nullopt;
    path = *copy;
  }
  if (::access(path.c_str(), F_OK) != 0) return std::nullopt;
  try {
    const Json json = Json::parse(read_user_file(path, kMaxNoteBytes));
    if (const auto schema = json.get<int>("schema"); schema != kNoteSchema)
      throw JsonError("schema " + std::to_string(schema) + " is not known, expected " + std::to_string(kNoteSchema));
    Note note;
    json.get_to("tokenizer", note.tokenizer);
    json.get_to("tokenizer_path", note.tokenizer_path);
    json.get_to("tokenizer_fingerprint", note.tokenizer_fingerprint);
    if (json.contains("eod_token")) json.get_to("eod_token", note.eod_token);
    if (json.contains("chat_template")) json.get_to("chat_template", note.chat_template);
    if (json.contains("image_patch")) json.get_to("image_patch", note.patch);
    if (json.contains("packed_to")) json.get_to("packed_to", note.packed_to);
    json.get_to("vocab_size", note.vocab_size);
    json.get_to("eod", note.eod);
    note.frame.end = {note.eod};
    if (json.contains("document_begin")) json.get_to("document_begin", note.frame.begin);
    if (json.contains("document_end")) json.get_to("document_end", note.frame.end);
    json.get_to("documents", note.documents);
    json.get_to("tokens", note.tokens);
    json.get_to("text_bytes", note.text_bytes);
    json.get_to("source_files", note.source_files);
    if (json.contains("targets")) note.targets = json.get<std::int64_t>("targets");
    if (json.contains("mask_hash")) json.get_to("mask_hash", note.mask_hash);
    if (note.vocab_size < 1 || note.eod < 0 || note.eod >= note.text_vocab())
      throw JsonError("eod is not a token of the vocabulary");
    return note;
  } catch (const JsonError& error) {  // becomes our error, with the file's name
    throw Error("data.note", Blame::storage, fmt::format("{}: {}", path, error.what()),
                "remove it: a token file is read without a note, too");
  }
}

std::unique_ptr<Tokenizer> tokenizer_of(const Note& note, const std::string& prefix) {
  if (note.tokenizer_path.empty()) return with_images(make_tokenizer(note.tokenizer), note);
  std::optional<std::string> eod_token;
  if (!note.eod_token.empty()) eod_token = note.eod_token;
  std::unique_ptr<Tokenizer> tokenizer =
      make_tokenizer(note.tokenizer_path, eod_token, note.frame != Tokenizer::Frame{{}, {note.eod}});
  if (tokenizer->fingerprint() != note.tokenizer_fingerprint) {
    log::warn("data",
              "{} is not the tokenizer that wrote {}: its fingerprint is {}, and {} has {}; give the right one with "
              "--tokenizer, or encode the text again",
              note.tokenizer_path, prefix, tokenizer->fingerprint(), note_path(prefix), note.tokenizer_fingerprint);
  }
  return with_images(std::move(tokenizer), note);
}

std::unique_ptr<Tokenizer> tokenizer_of(const std::string& prefix, std::optional<std::int64_t> vocab_size) {
  if (const std::optional<Note> note = read_note(prefix)) return tokenizer_of(*note, prefix);
  return vocab_size ? tokenizer_for_vocab(*vocab_size) : make_tokenizer("byte");
}

void check_vocab(const Note& note, const std::string& prefix, std::int64_t vocab_size) {
  if (note.vocab_size <= vocab_size) return;
  throw user_error(
      "data.vocab",
      fmt::format("{} was written by the tokenizer {}, which has {} tokens, and the model's vocabulary has "
                  "{}",
                  prefix, note.tokenizer, note.vocab_size, vocab_size),
      fmt::format("set model.vocab = {}, or a multiple of 128 above it", note.vocab_size));
}

void check_packing(const Note& note, const std::string& prefix, std::int64_t seq) {
  if (note.packed_to == 0 || note.packed_to == seq) return;
  throw user_error(
      "data.packed",
      fmt::format("{} is packed to samples of {} tokens, and those of this run have {}", prefix, note.packed_to, seq),
      fmt::format("set model.seq = {0}, or pack the file that it was made of again: ms-data pack --seq {1}",
                  note.packed_to, seq));
}

}  // namespace ms::data
