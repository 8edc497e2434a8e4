#include "data/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <new>
#include <utility>

#include "base/error.h"
#include "data/utf8.h"

namespace ms::data {
namespace {

// Characters that take part in normalisation, and that Unicode 9 does not have: tokenizers leaves each where it is.
struct Range {
  char32_t first, last;
};
constexpr Range kLaterMarks[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},
    {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},
    {0xa82c, 0xa82c},   {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e}, {0x11839, 0x1183a},
    {0x11930, 0x11930}, {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34},
    {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97},
    {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae},
    {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}};

bool is_later_mark(char32_t c) {
  if (c < kLaterMarks[0].first) return false;
  const Range* const range =
      std::partition_point(std::begin(kLaterMarks), std::end(kLaterMarks), [&](const Range& r) { return r.last < c; });
  return range != std::end(kLaterMarks) && range->first <= c;
}

// Whether the character stays as it is, whatever stands beside it. Below U+0300 all do, where no mark follows.
bool is_stable(char32_t c) {
  if (c < 0x300) return true;
  if (c >= 0x3400 && c < 0xa000) return true;   // Chinese
  if (c >= 0x1160 && c < 0x1200) return false;  // Hangul vowels and finals, which are composed without a table
  const utf8proc_property_t* const p = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  return p->combining_class == 0 && p->decomp_seqindex == UINT16_MAX && p->comb_index == UINT16_MAX;
}

bool has_form(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (!is_stable(c.value)) return false;
    at += c.bytes;
  }
  return true;
}

void append_nfc(std::string& storage, std::string_view text) {
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }  // utf8proc's manual asks for it
  };
  if (has_form(text)) {
    storage += text;
    return;
  }
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &made, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, Free> owner(made);
  if (bytes == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  MS_ASSERT(bytes >= 0, "the text is UTF-8: {}", utf8proc_errmsg(bytes));
  storage.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(bytes));
}

}  // namespace

std::string_view normalize_nfc(std::string_view text, std::string& storage) {
  if (has_form(text)) return text;
  storage.clear();
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    // Nothing composes across the end of a line; utf8proc needs several times the memory of what it gets at once.
    if (c.value == '\n' || is_later_mark(c.value)) {
      append_nfc(storage, text.substr(begin, at - begin));
      storage += text.substr(at, c.bytes);
      begin = at + c.bytes;
    }
    at += c.bytes;
  }
  append_nfc(storage, text.substr(begin));
  return storage;
}

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
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    std::string& next = text.data() == storage[0].data() ? storage[1] : storage[0];
    switch (steps_[i].kind) {
      case NormalizerStep::Kind::nfc: text = normalize_nfc(text, next); break;
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
    }
  }
  return text;
}

}  // namespace ms::data
