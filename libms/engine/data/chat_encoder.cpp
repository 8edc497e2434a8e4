#include "data/chat_encoder.h"

#include <algorithm>
#include <span>
#include <string>

#include "base/error.h"
#include "data/target_mask.h"

namespace ms::data {
namespace {

// Whether encode() gives one token for this text, which leaves the text before it as it is.
bool is_one_token(const Tokenizer& tokenizer, std::string_view token) {
  constexpr std::string_view kBefore = "a\n";
  std::vector<std::int32_t> alone, before, both;
  tokenizer.encode(token, alone);
  tokenizer.encode(kBefore, before);
  tokenizer.encode(std::string(kBefore) + std::string(token), both);
  if (alone.size() != 1) return false;
  before.push_back(alone[0]);
  return both == before;
}

std::size_t count_of(std::span<const std::string_view> tokens, std::string_view text) {
  std::size_t count = 0;
  for (const std::string_view token : tokens) {
    for (std::size_t at = text.find(token); at != std::string_view::npos; at = text.find(token, at + token.size()))
      ++count;
  }
  return count;
}

}  // namespace

ChatEncoder::ChatEncoder(const ChatTemplate& format, const Tokenizer& tokenizer, bool trains_on_all)
    : format_(format), tokenizer_(tokenizer), trains_on_all_(trains_on_all) {
  for (const std::string_view token : format.special) {
    if (is_one_token(tokenizer, token)) continue;
    throw user_error("data.template",
                     fmt::format("the chat template {} needs the token '{}', which the tokenizer {} does not have",
                                 format.name, token, tokenizer.name()),
                     "name the tokenizer.json of the model that has this template, or another --chat-template");
  }
}

std::optional<JsonLineProblem> ChatEncoder::encode(std::string_view line, std::vector<std::int32_t>& tokens,
                                                   Scratch& scratch) const {
  if (auto problem = read_chat(line, scratch.messages)) return problem;
  if (auto problem = render(format_, scratch.messages, scratch.chat)) return problem;
  const RenderedChat& chat = scratch.chat;
  scratch.has_control = count_of(format_.special, chat.text) > chat.cuts.size();
  // A special token ends what is encoded as one: the pieces have the tokens of the whole.
  std::size_t begin = 0;
  scratch.answer = 0;
  for (std::size_t i = 0; i <= chat.cuts.size(); ++i) {
    const std::size_t end = i < chat.cuts.size() ? chat.cuts[i] : chat.text.size();
    if (end > begin) encode_piece(std::string_view(chat.text).substr(begin, end - begin), begin, tokens, scratch);
    begin = end;
  }
  return std::nullopt;
}

// Appends the tokens of a piece of scratch.chat.text that begins at byte `begin`.
void ChatEncoder::encode_piece(std::string_view text, std::size_t begin, std::vector<std::int32_t>& tokens,
                               Scratch& scratch) const {
  const std::size_t first = tokens.size();
  tokenizer_.encode(text, tokens);
  if (trains_on_all_) return;
  const std::span<std::int32_t> piece = std::span(tokens).subspan(first);
  // The token that holds byte `at` of the piece, or, for an end, the one behind the token that holds the byte before.
  const auto token_at = [&](std::size_t at, bool is_end) -> std::size_t {
    if (at == 0) return 0;
    if (at == text.size()) return piece.size();
    scratch.prefix.clear();
    tokenizer_.encode(text.substr(0, at), scratch.prefix);
    const auto same = std::ranges::mismatch(piece, scratch.prefix);
    const bool is_between = same.in2 == scratch.prefix.end();
    return static_cast<std::size_t>(same.in1 - piece.begin()) + (is_end && !is_between ? 1 : 0);
  };
  std::size_t ignored = 0;  // the first token that is not looked at yet
  std::vector<RenderedChat::Span> answers;
  const std::vector<RenderedChat::Span>& all = scratch.chat.answers;
  while (scratch.answer < all.size() && all[scratch.answer].end <= begin) ++scratch.answer;
  for (std::size_t i = scratch.answer; i < all.size() && all[i].begin < begin + text.size(); ++i) {
    const std::size_t lowest = std::max(all[i].begin, begin), highest = std::min(all[i].end, begin + text.size());
    answers.push_back({token_at(lowest - begin, false), token_at(highest - begin, true)});
  }
  for (const auto& [from, to] : answers) {
    if (from > ignored) ignore_targets(piece.subspan(ignored, from - ignored));
    ignored = std::max(ignored, to);
  }
  ignore_targets(piece.subspan(std::min(ignored, piece.size())));
}

}  // namespace ms::data
