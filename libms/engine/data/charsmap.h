// The normalizer of SentencePiece models: a table of texts and what replaces them, as tokenizer.json files have it in
// `precompiled_charsmap`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ms::data {

class Charsmap {
 public:
  // `base64` holds a little-endian count of bytes, so many bytes of a double-array trie in the format of Darts-clone,
  // and the replacements, each with a NUL behind it. Error("data.tokenizer", user): it does not.
  explicit Charsmap(std::string_view base64);

  // Appends `text`, which is UTF-8, to `result` with its replacements: of a grapheme of less than six bytes, or else
  // of each of its characters. Error("data.tokenizer", user): the table is damaged.
  void append(std::string_view text, std::string& result) const;

 private:
  bool append_replacement(std::string_view text, std::string& result) const;
  std::uint32_t unit(std::size_t at) const;

  std::vector<std::uint32_t> trie_;
  std::string replacements_;
};

}  // namespace ms::data
