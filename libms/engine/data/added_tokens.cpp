#include "data/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/utf8.h"

namespace ms::data {
namespace {

std::uint64_t child_key(std::uint32_t node, char byte) {
  return std::uint64_t{node} << 8U | static_cast<unsigned char>(byte);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<std::pair<std::string, AddedToken>>& tokens) {
  struct Rest {
    std::string_view text;  // without the bytes that `node` stands for
    std::uint32_t node;
    std::int32_t token;
  };
  std::vector<Rest> rests;
  for (const auto& [text, token] : tokens) {
    ends_with_[static_cast<unsigned char>(text.back())] = true;
    rests.push_back({text, 0, static_cast<std::int32_t>(tokens_.size())});
    tokens_.push_back({text.size(), token});
    if (token.single_word && !word_character_) word_character_.emplace(fmt::format("[{}]", kWordCharacters));
  }
  // One byte of each at a time: what a node falls back to is shorter, and complete.
  for (; !rests.empty(); std::erase_if(rests, [](const Rest& rest) { return rest.text.empty(); })) {
    for (Rest& rest : rests) {
      const auto [child, is_new] =
          children_.try_emplace(child_key(rest.node, rest.text.back()), static_cast<std::uint32_t>(nodes_.size()));
      if (is_new) {
        const std::uint32_t shorter = rest.node == 0 ? 0 : next(nodes_[rest.node].shorter, rest.text.back());
        nodes_.push_back({.shorter = shorter, .longest = nodes_[shorter].longest});
      }
      rest.node = child->second;
      rest.text.remove_suffix(1);
      if (rest.text.empty()) nodes_[rest.node].longest = rest.token;
    }
  }
}

std::uint32_t AddedTokenFinder::next(std::uint32_t node, char byte, std::size_t* moves) const {
  for (;; node = nodes_[node].shorter) {
    if (moves != nullptr) ++*moves;
    const auto child = children_.find(child_key(node, byte));
    if (child != children_.end()) return child->second;
    if (node == 0) return 0;
  }
}

std::vector<AddedTokenFinder::Found> AddedTokenFinder::find(std::string_view text, std::size_t* moves) const {
  std::vector<Found> found;
  if (tokens_.empty()) return found;
  std::uint32_t node = 0;
  for (std::size_t at = text.size(); at-- > 0;) {
    if (node == 0 && !ends_with_[static_cast<unsigned char>(text[at])]) continue;
    node = next(node, text[at], moves);
    if (const std::int32_t longest = nodes_[node].longest; longest >= 0) found.push_back({at, longest});
  }
  return found;
}

bool AddedTokenFinder::is_word_character(std::string_view character, Pattern::Scratch& scratch) const {
  return word_character_->find(character, 0, scratch).has_value();
}

void AddedTokenFinder::split(std::string_view text, Pattern::Scratch& scratch,
                             const std::function<void(std::string_view)>& on_text,
                             const std::function<void(std::int32_t)>& on_token) const {
  std::size_t done = 0;       // what is behind it has been handed out
  std::size_t from = 0;       // the next token begins there or later
  std::size_t spaces_to = 0;  // all between the last token with `rstrip` and here is white space
  const std::vector<Found> all = find(text);
  for (auto found = all.rbegin(); found != all.rend(); ++found) {
    if (found->begin < from) continue;
    const auto& [size, token] = tokens_[static_cast<std::size_t>(found->token)];
    std::size_t begin = found->begin, end = begin + size;
    from = end;
    if (token.single_word) {
      const std::size_t before = begin > 0 ? previous_character(text, begin) : 0;
      if (begin > 0 && is_word_character(text.substr(before, begin - before), scratch)) continue;
      if (end < text.size() && is_word_character(text.substr(end, code_point_at(text, end).bytes), scratch)) continue;
    }
    if (token.lstrip) {
      while (begin > done) {
        const std::size_t before = previous_character(text, begin);
        if (!is_white_space(code_point_at(text, before).value)) break;
        begin = before;
      }
      begin = std::max(begin, done);
    }
    if (token.rstrip) {
      end = std::max(end, spaces_to);
      while (end < text.size() && is_white_space(code_point_at(text, end).value)) end += code_point_at(text, end).bytes;
      spaces_to = end;
    }
    if (done < begin) on_text(text.substr(done, begin - done));
    on_token(token.id);
    // A token of white space may lie in what the token before it took: what follows it is then handed out again.
    done = end;
  }
  if (done < text.size()) on_text(text.substr(done));
}

}  // namespace ms::data
