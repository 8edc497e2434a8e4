// Tokenizers of tokenizer.json files, with the tokens that Hugging Face's tokenizers gives; the special
// tokens that a template puts around the text are the frame.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/tokenizer.h"
#include "data/tokenizer_json.h"
#include "data/unigram.h"
#include "data/word_piece.h"
#include "data/word_splitter.h"

namespace ms::data {

class FileTokenizer final : public Tokenizer {
 public:
  using Model = std::variant<Bpe, Unigram, WordPiece>;
  // `json` is the text of the file `name`. Error("data.tokenizer", user) as make_tokenizer().
  FileTokenizer(std::string name, std::string_view json, const std::optional<std::string>& end_of_document,
                bool with_template = true);
  ~FileTokenizer() override;

  std::string_view name() const override { return name_; }
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(texts_.size()); }
  std::int32_t end_of_document() const override { return end_of_document_; }
  Frame frame() const override { return frame_; }
  bool takes_pieces() const override { return false; }
  std::string fingerprint() const override { return fingerprint_; }
  std::vector<std::string> special_tokens() const override { return special_tokens_; }
  // Bytes that are not UTF-8 become U+FFFD, as Python's errors="replace" has it.
  bool encode(std::string_view text, std::vector<std::int32_t>& tokens) const override;
  using Tokenizer::decode;
  std::string decode(std::span<const std::int32_t> tokens, bool goes_on) const override;

 private:
  struct Scratch;

  FileTokenizer(std::string name, std::string_view json, const TokenizerSpec& spec,
                const std::optional<std::string>& end_of_document, bool with_template);
  void encode_normalized(std::string_view text, bool is_first, std::vector<std::int32_t>& tokens,
                         Scratch& scratch) const;
  void encode_word(std::string_view word, std::vector<std::int32_t>& tokens, Scratch& scratch) const;
  std::unique_ptr<Scratch> take_scratch() const;

  std::string name_, fingerprint_;
  Normalizer normalizer_;
  WordSplitter splitter_;
  Model model_;
  AddedTokenFinder raw_added_, normalized_added_;
  std::vector<std::string> texts_;        // the bytes of each token
  std::vector<std::string> first_texts_;  // and where a text begins with it; empty if there is no difference
  DecoderStep begin_;                     // what is taken off the begin of a text
  std::vector<std::string> special_tokens_;
  std::int32_t end_of_document_ = 0;
  Frame frame_;
  // Memory of threads that encode: as many as have encoded at the same time.
  mutable std::mutex mutex_;  // guards free_
  mutable std::vector<std::unique_ptr<Scratch>> free_;
};

}  // namespace ms::data
