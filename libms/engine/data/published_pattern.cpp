#include "data/published_pattern.h"

#include <algorithm>
#include <string>

#include "data/pattern.h"
#include "data/utf8.h"

namespace ms::data {
namespace {

constexpr char32_t kClassified = 0x40000;  // Unicode has neither letters nor numbers behind
constexpr std::size_t kMaxDigits = 3;      // of Llama 3's numbers

}  // namespace

PublishedPattern::PublishedPattern(Kind kind) : kind_(kind), classes_(kClassified, Class::other) {
  classify("\\p{L}+", Class::letter);
  classify("\\p{N}+", Class::number);
  for (char32_t c = 0; c < kClassified; ++c)
    if (is_white_space(c)) classes_[c] = Class::space;
}

// All code points in order are a text in which the category's runs are found at once.
void PublishedPattern::classify(std::string_view category, Class kind) {
  std::string all;
  for (char32_t c = 1; c < kClassified; ++c)
    if (c < 0xd800 || c >= 0xe000) append_utf8(all, c);
  const Pattern pattern(category);
  Pattern::Scratch scratch;
  std::size_t at = 0;
  while (const auto match = pattern.find(all, at, scratch)) {
    for (std::size_t i = match->begin; i < match->end;) {
      const CodePoint c = code_point_at(all, i);
      classes_[c.value] = kind;
      i += c.bytes;
    }
    at = match->end;
  }
}

PublishedPattern::Character PublishedPattern::character(std::string_view text, std::size_t at) const {
  if (at >= text.size()) return {Class::space, at};
  const CodePoint c = code_point_at(text, at);
  return {c.value < kClassified ? classes_[c.value] : Class::other, at + c.bytes};
}

std::size_t PublishedPattern::run_end(std::string_view text, std::size_t at, Class kind) const {
  while (at < text.size()) {
    const Character next = character(text, at);
    if (next.kind != kind) break;
    at = next.end;
  }
  return at;
}

// 's 't 're 've 'm 'll 'd; in any case but for GPT-2. U+017F is an s in another case.
std::size_t PublishedPattern::contraction_end(std::string_view text, std::size_t at) const {
  if (text[at] != '\'') return at;
  const bool any_case = kind_ != Kind::gpt2;
  const auto letter = [&](std::size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(at + 1), second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
  if (first == 'l' && second == 'l') return at + 3;
  return any_case && text.substr(at + 1).starts_with("\xc5\xbf") ? at + 3 : at;
}

// \s+(?!\S)|\s+ of white space from `at` to `run`: all of it at the end of the text, otherwise all but its last
// character, which stays with the word behind it, where that is not the only one.
std::size_t PublishedPattern::space_end(std::string_view text, std::size_t at, std::size_t run) const {
  if (run == text.size()) return run;
  const std::size_t last = previous_character(text, run);
  return last > at ? last : run;
}

std::size_t PublishedPattern::gpt2_end(std::string_view text, std::size_t at) const {
  const std::size_t word = text[at] == ' ' ? at + 1 : at;
  const Character first = character(text, word);
  if (first.kind != Class::space) return run_end(text, first.end, first.kind);
  return space_end(text, at, run_end(text, at, Class::space));
}

std::size_t PublishedPattern::llama3_end(std::string_view text, std::size_t at) const {
  const auto ends_line = [&](std::size_t i) { return text[i] == '\r' || text[i] == '\n'; };
  const Character first = character(text, at);
  if (first.kind == Class::letter) return run_end(text, first.end, Class::letter);
  if (first.kind == Class::number) {
    std::size_t end = first.end;
    for (std::size_t digits = 1; digits < (kind_ == Kind::llama3 ? kMaxDigits : 1); ++digits) {
      const Character next = character(text, end);
      if (next.kind != Class::number) break;
      end = next.end;
    }
    return end;
  }
  const Character second = character(text, first.end);
  if (!ends_line(at) && second.kind == Class::letter) return run_end(text, second.end, Class::letter);
  if (first.kind == Class::other || (text[at] == ' ' && second.kind == Class::other)) {
    std::size_t end = run_end(text, first.kind == Class::other ? first.end : second.end, Class::other);
    while (end < text.size() && ends_line(end)) ++end;
    return end;
  }
  const std::size_t run = run_end(text, at, Class::space);
  for (std::size_t i = run; i > at; --i)
    if (ends_line(i - 1)) return i;
  return space_end(text, at, run);
}

std::size_t PublishedPattern::match_end(std::string_view text, std::size_t at) const {
  const std::size_t contraction = contraction_end(text, at);
  if (contraction > at) return contraction;
  return kind_ == Kind::gpt2 ? gpt2_end(text, at) : llama3_end(text, at);
}

}  // namespace ms::data
