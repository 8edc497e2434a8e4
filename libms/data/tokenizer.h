// Tokenizers: text to token ids and back. ms-data encodes with one, ms-train samples text with one. A tokenizer has no
// state, so one object serves every thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ms::data {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string_view name() const = 0;
  // Ids are 0 .. vocab_size() - 1, the end-of-document token included.
  virtual std::int64_t vocab_size() const = 0;
  virtual std::int32_t end_of_document() const = 0;
  // Appends the tokens of `text` to `tokens`. `text` may be a document's piece, cut at any byte.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& tokens) const = 0;
  // The bytes of the tokens, nothing for the end-of-document token. Error("data.token", user) names an id that this
  // tokenizer does not have.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
};

// One token per byte, and id 256 for the end of a document: needs no training and reads any text in any language.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::int32_t kEndOfDocument = 256;
  static constexpr std::int64_t kVocabSize = 257;

  std::string_view name() const override { return "byte"; }
  std::int64_t vocab_size() const override { return kVocabSize; }
  std::int32_t end_of_document() const override { return kEndOfDocument; }
  void encode(std::string_view text, std::vector<std::int32_t>& tokens) const override;
  std::string decode(std::span<const std::int32_t> tokens) const override;
};

// The tokenizer of that name; Error("data.tokenizer", user) lists the known names.
std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name);

// The tokenizer whose vocabulary has this size; nullptr: none is known.
std::unique_ptr<Tokenizer> tokenizer_for_vocab(std::int64_t vocab_size);

}  // namespace ms::data
