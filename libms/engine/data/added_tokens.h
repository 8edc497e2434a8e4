// Added tokens: texts that a tokenizer takes for one token wherever they stand, before anything else is done. Special
// tokens are some of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/pattern.h"

namespace ms::data {

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false;
  bool single_word = false;  // not where a letter, a digit or the like stands beside it
  bool lstrip = false;       // with the white space before it
  bool rstrip = false;       // with the white space behind it
  bool normalized = false;   // is looked for in the normalised text, and not before
};

// Finds the longest of some added tokens that begins leftmost, again and again, as Hugging Face's tokenizers does.
class AddedTokenFinder {
 public:
  // `tokens` with the text to look for, which is not empty; no text comes twice.
  explicit AddedTokenFinder(const std::vector<std::pair<std::string, AddedToken>>& tokens);

  // Calls `on_text` with each piece between the tokens, none of them empty, and `on_token` with each token's id, in
  // order.
  void split(std::string_view text, Pattern::Scratch& scratch, const std::function<void(std::string_view)>& on_text,
             const std::function<void(std::int32_t)>& on_token) const;

  // The longest token that begins at a byte of the text.
  struct Found {
    std::size_t begin;
    std::int32_t token;  // an index
  };
  // Returns one for each byte where a token begins, the last first. Adds to `moves` the nodes that were looked at.
  std::vector<Found> find(std::string_view text, std::size_t* moves = nullptr) const;

 private:
  // Aho-Corasick over the tokens read backwards. One walk from the end of a text to its begin, in time linear in the
  // text, meets each token where it begins.
  struct Node {
    std::uint32_t shorter = 0;  // the longest node that is a proper suffix of this one
    std::int32_t longest = -1;  // the longest token that is a suffix of this one, or itself
  };
  std::uint32_t next(std::uint32_t node, char byte, std::size_t* moves = nullptr) const;
  bool is_word_character(std::string_view character, Pattern::Scratch& scratch) const;

  std::vector<std::pair<std::size_t, AddedToken>> tokens_;  // with the bytes of the text to look for
  std::vector<Node> nodes_{1};
  std::unordered_map<std::uint64_t, std::uint32_t> children_;  // by node and byte
  bool ends_with_[256] = {};                                   // bytes that a token ends with
  std::optional<Pattern> word_character_;                      // where a token is a single word
};

}  // namespace ms::data
