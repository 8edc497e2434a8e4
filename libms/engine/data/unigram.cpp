#include "data/unigram.h"

#include <algorithm>
#include <utility>

#include "data/utf8.h"

namespace ms::data {
namespace {

constexpr double kUnknownPenalty = 10;  // below the lowest score of the vocabulary

std::vector<std::pair<std::string_view, std::int32_t>> numbered(const std::vector<std::string>& vocab) {
  std::vector<std::pair<std::string_view, std::int32_t>> texts;
  for (const std::string& token : vocab) texts.emplace_back(token, static_cast<std::int32_t>(texts.size()));
  return texts;
}

}  // namespace

Unigram::Unigram(const std::vector<std::string>& vocab, std::vector<double> scores, std::int32_t unknown,
                 const std::array<std::int32_t, 256>& fallback)
    : trie_(numbered(vocab)),
      scores_(std::move(scores)),
      unknown_(unknown),
      unknown_score_(*std::ranges::min_element(scores_) - kUnknownPenalty),
      fallback_(fallback) {}

void Unigram::encode(std::string_view word, std::vector<std::int32_t>& tokens, Scratch& scratch) const {
  auto& best = scratch.best_;
  best.assign(word.size() + 1, {});
  for (std::size_t at = 0; at < word.size();) {
    const auto reach = [&](std::size_t bytes, double score, std::int32_t token) {
      Scratch::Node& end = best[at + bytes];
      if (const double sum = best[at].score + score; end.token < 0 || sum > end.score) end = {sum, at, token};
    };
    const std::size_t character = code_point_at(word, at).bytes;
    bool is_known = false;
    trie_.each_prefix(word.substr(at), [&](std::size_t bytes, std::int32_t token) {
      reach(bytes, scores_[static_cast<std::size_t>(token)], token);
      is_known = is_known || bytes == character;
    });
    if (!is_known) reach(character, unknown_score_, unknown_);
    at += character;
  }
  const auto first = static_cast<std::ptrdiff_t>(tokens.size());
  for (std::size_t end = word.size(); end > 0;) {
    std::size_t begin = best[end].begin;
    if (best[end].token == unknown_) {
      while (best[begin].token == unknown_) begin = best[begin].begin;
      append_unknown(word.substr(begin, end - begin), tokens);
    } else {
      tokens.push_back(best[end].token);
    }
    end = begin;
  }
  std::reverse(tokens.begin() + first, tokens.end());
}

void Unigram::append_unknown(std::string_view text, std::vector<std::int32_t>& reversed) const {
  std::int32_t whole = -1;  // unknown characters beside each other may be a token together
  trie_.each_prefix(text, [&](std::size_t bytes, std::int32_t token) {
    if (bytes == text.size()) whole = token;
  });
  const auto fallback = [&](char byte) { return fallback_[static_cast<unsigned char>(byte)]; };
  if (whole >= 0) {
    reversed.push_back(whole);
  } else if (std::ranges::all_of(text, [&](char byte) { return fallback(byte) >= 0; })) {
    for (auto byte = text.rbegin(); byte != text.rend(); ++byte) reversed.push_back(fallback(*byte));
  } else {
    reversed.push_back(unknown_);
  }
}

}  // namespace ms::data
