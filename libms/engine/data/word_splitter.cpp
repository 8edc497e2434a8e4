#include "data/word_splitter.h"

#include <utility>

namespace ms::data {

WordSplitter::WordSplitter(const std::vector<SplitStep>& steps, bool by_pcre2) {
  for (const SplitStep& what : steps) {
    using Kind = PublishedPattern::Kind;
    using enum SplitStep::Kind;
    Step& step = steps_.emplace_back(Step{what, nullptr, {}});
    const bool isolates = what.kind == pattern && what.behavior == SplitBehavior::isolated;
    for (const auto& [published, kind] : {std::pair(kGpt2Pattern, Kind::gpt2), std::pair(kLlama3Pattern, Kind::llama3),
                                          std::pair(kQwen2Pattern, Kind::qwen2)})
      if (isolates && what.text == published && !by_pcre2) step.published = std::make_unique<PublishedPattern>(kind);
    if (!step.published && what.kind != prefix && what.kind != first_prefix)
      step.needle.emplace(what.text, what.kind == pattern);
  }
}

void WordSplitter::split(std::string_view text, bool is_first, Pattern::Scratch& scratch,
                         const std::function<void(std::string_view)>& on_word) const {
  if (!text.empty()) split(0, text, is_first, scratch, on_word);
}

template <class OnPiece>
void WordSplitter::split_at(const Step& step, std::string_view text, Pattern::Scratch& scratch, const OnPiece& piece) {
  const SplitBehavior behavior = step.what.behavior;
  // A piece that waits for what follows it: [pending, at); and of the last part of it.
  std::size_t pending = 0;
  bool is_pending = false, was_match = false;
  const auto flush = [&](std::size_t end) {
    if (is_pending) piece(pending, end);
    is_pending = false;
  };
  const auto part = [&](std::size_t begin, std::size_t end, bool is_match) {
    if (begin == end) return;
    is_match = is_match != step.what.invert;
    switch (behavior) {
      case SplitBehavior::isolated: piece(begin, end); return;
      case SplitBehavior::removed:
        if (!is_match) piece(begin, end);
        return;
      case SplitBehavior::contiguous:
        if (is_pending && is_match != was_match) flush(begin);
        break;
      case SplitBehavior::merged_with_previous:
        if (is_pending && !(is_match && !was_match)) flush(begin);
        break;
      case SplitBehavior::merged_with_next:
        if (is_pending && !(was_match && !is_match)) flush(begin);
        break;
    }
    if (!is_pending) pending = begin;
    is_pending = true;
    was_match = is_match;
  };
  std::size_t at = 0;
  while (const auto match = step.needle->find(text, at, scratch)) {
    part(at, match->begin, false);
    part(match->begin, match->end, true);
    at = match->end;
  }
  part(at, text.size(), false);
  flush(text.size());
}

void WordSplitter::split(std::size_t number, std::string_view text, bool is_first, Pattern::Scratch& scratch,
                         const Use& on_word) const {
  if (number == steps_.size()) {
    on_word(text);
    return;
  }
  const Step& step = steps_[number];
  const bool is_last = number + 1 == steps_.size();
  const auto piece = [&](std::string_view word, bool first) {
    if (word.empty()) return;
    if (is_last) {
      on_word(word);
    } else {
      split(number + 1, word, first, scratch, on_word);
    }
  };
  if (step.published) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = step.published->match_end(text, at);
      piece(text.substr(at, end - at), is_first && at == 0);
      at = end;
    }
    return;
  }
  switch (step.what.kind) {
    case SplitStep::Kind::pattern:
    case SplitStep::Kind::literal:
      split_at(step, text, scratch, [&](std::size_t begin, std::size_t end) {
        piece(text.substr(begin, end - begin), is_first && begin == 0);
      });
      break;
    case SplitStep::Kind::replace: {
      std::string replaced;
      replace_matches(text, *step.needle, step.what.content, max_replaced_bytes(text), replaced, scratch);
      piece(replaced, is_first);
      break;
    }
    case SplitStep::Kind::prefix:
    case SplitStep::Kind::first_prefix:
      if (text.starts_with(step.what.text) || (step.what.kind == SplitStep::Kind::first_prefix && !is_first)) {
        piece(text, is_first);
      } else {
        piece(step.what.text + std::string(text), is_first);
      }
      break;
  }
}

}  // namespace ms::data
