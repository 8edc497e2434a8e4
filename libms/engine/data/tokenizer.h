// Tokenizers: text to token ids and back. ms-data encodes with one, ms-train samples text with one. A tokenizer does
// not change once it is made, so one object serves every thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ms::data {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // "byte", or the path of its file.
  virtual std::string_view name() const = 0;
  // Ids are 0 .. vocab_size() - 1, the end-of-document token included.
  virtual std::int64_t vocab_size() const = 0;
  virtual std::int32_t end_of_document() const = 0;
  // The tokens around the text of each document: those that the template of its file adds, the last of which is the
  // end-of-document token at any rate.
  struct Frame {
    std::vector<std::int32_t> begin, end;
    friend bool operator==(const Frame&, const Frame&) = default;
  };
  virtual Frame frame() const { return {{}, {end_of_document()}}; }
  // Says whether encode() of the pieces of a document, split at any byte, gives the tokens of the whole. Where it does
  // not, encode() takes whole documents.
  virtual bool takes_pieces() const = 0;
  // 16 hexadecimal digits, the xxh3-64 of the tokenizer file's bytes; empty for a tokenizer without a file.
  virtual std::string fingerprint() const = 0;
  // The text of the special tokens, in the order of their ids; empty for a tokenizer that has none with a text.
  virtual std::vector<std::string> special_tokens() const = 0;
  // Appends the tokens of `text` to `tokens`, without the frame. false: some bytes were not UTF-8, and the tokens
  // are those of U+FFFD in their place.
  virtual bool encode(std::string_view text, std::vector<std::int32_t>& tokens) const = 0;
  // The bytes of the tokens: nothing for those of the frame, other special tokens their text. The blank that encode()
  // puts before a text is left out unless the tokens go on with a text.
  // Error("data.token", user) names an id that this tokenizer does not have.
  virtual std::string decode(std::span<const std::int32_t> tokens, bool goes_on) const = 0;
  std::string decode(std::span<const std::int32_t> tokens) const { return decode(tokens, false); }
};

// One token per byte, and id 256 for the end of a document: needs no training and reads any text in any language.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::int32_t kEndOfDocument = 256;
  static constexpr std::int64_t kVocabSize = 257;

  std::string_view name() const override { return "byte"; }
  std::int64_t vocab_size() const override { return kVocabSize; }
  std::int32_t end_of_document() const override { return kEndOfDocument; }
  bool takes_pieces() const override { return true; }
  std::string fingerprint() const override { return ""; }
  std::vector<std::string> special_tokens() const override { return {}; }
  bool encode(std::string_view text, std::vector<std::int32_t>& tokens) const override;
  using Tokenizer::decode;
  std::string decode(std::span<const std::int32_t> tokens, bool goes_on) const override;
};

// The tokenizer of that name: "byte", or the path of a Hugging Face tokenizer.json. `end_of_document` names the token
// that ends a document, which must be one of the file's added tokens; without it, the first of <|endoftext|>,
// <|end_of_text|>, <|eot_id|>, </s>, <eos> and [SEP] that is a special token of the file does. Error("data.tokenizer",
// user): there is no such tokenizer, its file asks for what is not done exactly as Hugging Face's tokenizers does it,
// or no token is known to end a document; the hint lists the file's special tokens then. Without `with_template`, the
// frame is the end-of-document token alone.
std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name, const std::optional<std::string>& end_of_document = {},
                                          bool with_template = true);

// The tokenizer whose vocabulary has this size; nullptr: none is known.
std::unique_ptr<Tokenizer> tokenizer_for_vocab(std::int64_t vocab_size);

}  // namespace ms::data
