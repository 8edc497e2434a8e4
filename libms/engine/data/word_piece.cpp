#include "data/word_piece.h"

#include <algorithm>
#include <utility>

namespace ms::data {
namespace {

// The tokens that begin with `prefix`, without it.
std::vector<std::pair<std::string_view, std::int32_t>> behind(std::string_view prefix,
                                                              const std::vector<std::string>& vocab) {
  std::vector<std::pair<std::string_view, std::int32_t>> texts;
  for (std::size_t id = 0; id < vocab.size(); ++id)
    if (vocab[id].starts_with(prefix))
      texts.emplace_back(std::string_view(vocab[id]).substr(prefix.size()), static_cast<std::int32_t>(id));
  return texts;
}

}  // namespace

WordPiece::WordPiece(const std::vector<std::string>& vocab, std::string_view prefix, std::int32_t unknown,
                     std::size_t max_characters)
    : begins_(behind("", vocab)), parts_(behind(prefix, vocab)), unknown_(unknown), max_characters_(max_characters) {}

void WordPiece::encode(std::string_view word, std::vector<std::int32_t>& tokens) const {
  const auto begins_character = [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) != 0x80U; };
  const std::size_t first = tokens.size();
  bool is_known = static_cast<std::size_t>(std::ranges::count_if(word, begins_character)) <= max_characters_;
  for (std::size_t at = 0; is_known && at < word.size();) {
    std::size_t longest = 0;
    std::int32_t token = unknown_;
    (at == 0 ? begins_ : parts_).each_prefix(word.substr(at), [&](std::size_t bytes, std::int32_t found) {
      longest = bytes;
      token = found;
    });
    is_known = longest > 0;
    tokens.push_back(token);
    at += longest;
  }
  if (is_known) return;
  tokens.resize(first);
  tokens.push_back(unknown_);
}

}  // namespace ms::data
