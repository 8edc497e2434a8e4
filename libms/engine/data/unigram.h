// Unigram models: of all ways to put a word together from tokens, the one with the highest sum of scores.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/trie.h"

namespace ms::data {

class Unigram {
 public:
  // Memory of one thread's encoding.
  class Scratch {
    friend class Unigram;
    // The best way to a byte of the word: its last token, and the byte where that begins.
    struct Node {
      double score = 0;
      std::size_t begin = 0;
      std::int32_t token = -1;
    };
    std::vector<Node> best_;
  };

  // `unknown` is the token of characters that no token begins with; `fallback` are the tokens of single bytes,
  // which stand for them if all of them are there (-1: it is not).
  Unigram(const std::vector<std::string>& vocab, std::vector<double> scores, std::int32_t unknown,
          const std::array<std::int32_t, 256>& fallback);

  // Appends the tokens of the word. Of equal sums, the one with the longer token at the end is taken, as tokenizers
  // does it.
  void encode(std::string_view word, std::vector<std::int32_t>& tokens, Scratch& scratch) const;

 private:
  void append_unknown(std::string_view text, std::vector<std::int32_t>& reversed) const;

  Trie trie_;
  std::vector<double> scores_;
  std::int32_t unknown_;
  double unknown_score_;
  std::array<std::int32_t, 256> fallback_;
};

}  // namespace ms::data
