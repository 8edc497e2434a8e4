#include "data/normalize.h"

#include <utility>

#include "base/error.h"
#include "data/utf8.h"

namespace ms::data {

Needle::Needle(std::string text, bool is_pattern) : text_(std::move(text)) {
  if (text_.empty()) throw user_error("data.tokenizer", "the text to look for is empty");
  if (is_pattern) pattern_.emplace(text_);
}

std::optional<Pattern::Match> Needle::find(std::string_view text, std::size_t from, Pattern::Scratch& scratch) const {
  if (pattern_) return pattern_->find(text, from, scratch);
  const std::size_t at = text.find(text_, from);
  if (at == std::string_view::npos) return {};
  return Pattern::Match{at, at + text_.size()};
}

void replace_matches(std::string_view text, const Needle& needle, std::string_view content, std::size_t max_bytes,
                     std::string& result, Pattern::Scratch& scratch) {
  result.clear();
  std::size_t at = 0;
  while (const auto match = needle.find(text, at, scratch)) {
    result.append(text.substr(at, match->begin - at)).append(content);
    at = match->end;
    if (result.size() > max_bytes)
      throw user_error("data.tokenizer", fmt::format("a Replace makes more than {} bytes of a text", max_bytes));
  }
  result.append(text.substr(at));
}

Normalizer::Normalizer(const std::vector<NormalizerStep>& steps) : steps_(steps) {
  using Kind = NormalizerStep::Kind;
  for (const NormalizerStep& step : steps) {
    auto& needle = needles_.emplace_back();
    if (step.kind == Kind::replace || step.kind == Kind::replace_pattern)
      needle.emplace(step.replaced, step.kind == Kind::replace_pattern);
  }
}

std::string_view Normalizer::normalize(std::string_view text, std::string (&storage)[2],
                                       Pattern::Scratch& scratch) const {
  const std::size_t max_bytes = max_replaced_bytes(text);
  const std::string* used = nullptr;  // `text` lies in it
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    std::string& next = used == &storage[0] ? storage[1] : storage[0];
    switch (steps_[i].kind) {
      case NormalizerStep::Kind::form: text = normalize_form(text, steps_[i].form, next); break;
      case NormalizerStep::Kind::prepend:
        if (text.empty()) break;
        next.assign(steps_[i].content).append(text);
        text = next;
        break;
      case NormalizerStep::Kind::replace:
      case NormalizerStep::Kind::replace_pattern:
        replace_matches(text, *needles_[i], steps_[i].content, max_bytes, next, scratch);
        text = next;
        break;
      case NormalizerStep::Kind::strip_left:
        while (!text.empty() && is_white_space(code_point_at(text, 0).value))
          text.remove_prefix(code_point_at(text, 0).bytes);
        break;
      case NormalizerStep::Kind::strip_right:
        while (!text.empty() && is_white_space(code_point_at(text, previous_character(text, text.size())).value))
          text.remove_suffix(text.size() - previous_character(text, text.size()));
        break;
      case NormalizerStep::Kind::characters:
        next.clear();
        for (std::size_t at = 0; at < text.size(); at += code_point_at(text, at).bytes)
          steps_[i].map(code_point_at(text, at).value, next);
        text = next;
        break;
      case NormalizerStep::Kind::charsmap:
        next.clear();
        steps_[i].charsmap->append(text, next);
        text = next;
        break;
    }
    if (text.data() == next.data()) used = &next;
  }
  return text;
}

}  // namespace ms::data
