#include "data/word_splitter.h"

#include <utility>

namespace ms::data {

WordSplitter::WordSplitter(const std::vector<std::string>& patterns, bool add_prefix_space, bool gpt2_pattern,
                           bool by_pcre2) {
  const auto add = [&](std::string_view pattern) {
    Step& step = steps_.emplace_back();
    using Kind = PublishedPattern::Kind;
    for (const auto& [published, kind] : {std::pair(kGpt2Pattern, Kind::gpt2), std::pair(kLlama3Pattern, Kind::llama3),
                                          std::pair(kQwen2Pattern, Kind::qwen2)})
      if (pattern == published && !by_pcre2) step.published = std::make_unique<PublishedPattern>(kind);
    if (!step.published) step.pattern = std::make_unique<Pattern>(pattern);
  };
  for (const std::string& pattern : patterns) add(pattern);
  if (add_prefix_space) steps_.emplace_back();
  if (gpt2_pattern) add(kGpt2Pattern);
}

void WordSplitter::split(std::string_view text, Pattern::Scratch& scratch,
                         const std::function<void(std::string_view)>& on_word) const {
  if (!text.empty()) split(0, text, scratch, on_word);
}

void WordSplitter::split(std::size_t number, std::string_view text, Pattern::Scratch& scratch,
                         const std::function<void(std::string_view)>& on_word) const {
  if (number == steps_.size()) {
    on_word(text);
    return;
  }
  const Step& step = steps_[number];
  const bool is_last = number + 1 == steps_.size();
  const auto piece = [&](std::string_view word) {
    if (is_last) {
      on_word(word);
    } else {
      split(number + 1, word, scratch, on_word);
    }
  };
  if (step.published) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = step.published->match_end(text, at);
      piece(text.substr(at, end - at));
      at = end;
    }
  } else if (step.pattern) {
    std::size_t at = 0;
    while (const auto match = step.pattern->find(text, at, scratch)) {
      if (at < match->begin) piece(text.substr(at, match->begin - at));
      piece(text.substr(match->begin, match->end - match->begin));
      at = match->end;
    }
    if (at < text.size()) piece(text.substr(at));
  } else if (text.starts_with(' ')) {
    piece(text);
  } else {
    piece(' ' + std::string(text));
  }
}

}  // namespace ms::data
