// WordPiece models: the longest token that a word begins with, then the longest that its rest begins with, to its end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/trie.h"

namespace ms::data {

class WordPiece {
 public:
  // Tokens within a word begin with `prefix` in `vocab`. `unknown` is the token of words that do not end with a token
  // or have more than `max_characters`.
  WordPiece(const std::vector<std::string>& vocab, std::string_view prefix, std::int32_t unknown,
            std::size_t max_characters);

  // Appends the tokens of the word.
  void encode(std::string_view word, std::vector<std::int32_t>& tokens) const;

 private:
  Trie begins_, parts_;
  std::int32_t unknown_;
  std::size_t max_characters_;
};

}  // namespace ms::data
