// Training of byte-level BPE: the merges and ids that the BpeTrainer of Hugging Face's tokenizers makes of the same
// documents, with the alphabet of all bytes and no least frequency.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "data/pattern.h"
#include "data/tokenizer_json.h"
#include "data/word_splitter.h"

namespace ms::data {

// The tokenizer of that name before it has a vocabulary: "gpt2", "llama3" (a word that is a token stays one) or "qwen2"
// (NFC). Error("data.pattern", user) lists the names.
TokenizerSpec untrained_tokenizer(std::string_view name);

// How often each word is in the documents.
class WordCounter {
 public:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };
  using Counts = std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>>;

  explicit WordCounter(const TokenizerSpec& spec);
  // Adds a whole document. Special tokens in it are text.
  void add(std::string_view document);
  const Counts& counts() const { return counts_; }

 private:
  Normalizer normalizer_;
  WordSplitter splitter_;
  Pattern::Scratch matching_;
  std::string valid_, normalized_[2];
  Counts counts_;
};

// Gives `spec` its vocabulary: the special tokens in their order, the 256 bytes, and merges until there are
// `vocab_size` tokens, or no two tokens stand beside each other in any word. Of the pairs that are most frequent the
// one with the least ids is merged first. Calls `progress` with the number of tokens now and then. Error("data.vocab",
// user): vocab_size is less than the special tokens and the bytes take.
void train_bpe(const WordCounter::Counts& counts, std::int64_t vocab_size, std::span<const std::string> special,
               TokenizerSpec& spec, const std::function<void(std::int64_t)>& progress = {});

}  // namespace ms::data
