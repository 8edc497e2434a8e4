#include "data/added_tokens.h"

#include <algorithm>

#include "data/utf8.h"

namespace ms::data {
namespace {

// Characters that Rust's regular expressions call \w: alphabetic ones, marks, decimal digits, connecting punctuation
// and joiners. Of the alphabetic ones, those in no category of letters, marks or numbers are symbols in circles and the
// like. Of the numbers, the decimal digits are those below; of the others, letters (Nl) belong to \w.
constexpr std::string_view kWordCharacter = R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc})"
                                            "\xe2\x80\x8c\xe2\x80\x8d\xe2\x92\xb6-\xe2\x93\xa9"
                                            "\xf0\x9f\x84\xb0-\xf0\x9f\x85\x89\xf0\x9f\x85\x90-\xf0\x9f\x85\xa9"
                                            "\xf0\x9f\x85\xb0-\xf0\x9f\x86\x89]";

std::uint64_t child_key(std::uint32_t node, char byte) {
  return std::uint64_t{node} << 8U | static_cast<unsigned char>(byte);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<std::pair<std::string, AddedToken>>& tokens) : ends_{-1} {
  for (const auto& [text, token] : tokens) {
    begins_[static_cast<unsigned char>(text[0])] = true;
    std::uint32_t node = 0;
    for (const char byte : text) {
      const auto [child, is_new] =
          children_.try_emplace(child_key(node, byte), static_cast<std::uint32_t>(ends_.size()));
      if (is_new) ends_.push_back(-1);
      node = child->second;
    }
    ends_[node] = static_cast<std::int32_t>(tokens_.size());
    tokens_.push_back(token);
    if (token.single_word && !word_character_) word_character_.emplace(kWordCharacter);
  }
}

std::optional<AddedTokenFinder::Found> AddedTokenFinder::find(std::string_view text, std::size_t from) const {
  if (tokens_.empty()) return {};
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<unsigned char>(text[begin])]) continue;
    std::optional<Found> longest;
    std::uint32_t node = 0;
    for (std::size_t at = begin; at < text.size(); ++at) {
      const auto child = children_.find(child_key(node, text[at]));
      if (child == children_.end()) break;
      node = child->second;
      if (ends_[node] >= 0) longest = Found{begin, at + 1, &tokens_[static_cast<std::size_t>(ends_[node])]};
    }
    if (longest) return longest;
  }
  return {};
}

bool AddedTokenFinder::is_word_character(std::string_view character, Pattern::Scratch& scratch) const {
  return word_character_->find(character, 0, scratch).has_value();
}

void AddedTokenFinder::split(std::string_view text, Pattern::Scratch& scratch,
                             const std::function<void(std::string_view)>& on_text,
                             const std::function<void(std::int32_t)>& on_token) const {
  std::size_t done = 0;  // what is behind it has been handed out
  for (std::size_t from = 0;;) {
    const std::optional<Found> found = find(text, from);
    if (!found) break;
    from = found->end;
    std::size_t begin = found->begin, end = found->end;
    if (found->token->single_word) {
      const std::size_t before = begin > 0 ? previous_character(text, begin) : 0;
      if (begin > 0 && is_word_character(text.substr(before, begin - before), scratch)) continue;
      if (end < text.size() && is_word_character(text.substr(end, code_point_at(text, end).bytes), scratch)) continue;
    }
    if (found->token->lstrip) {
      while (begin > 0) {
        const std::size_t before = previous_character(text, begin);
        if (!is_white_space(code_point_at(text, before).value)) break;
        begin = before;
      }
      begin = std::max(begin, done);
    }
    while (found->token->rstrip && end < text.size() && is_white_space(code_point_at(text, end).value))
      end += code_point_at(text, end).bytes;
    if (done < begin) on_text(text.substr(done, begin - done));
    on_token(found->token->id);
    // A token of white space may lie in what the token before it took: what follows it is then handed out again.
    done = end;
  }
  if (done < text.size()) on_text(text.substr(done));
}

}  // namespace ms::data
