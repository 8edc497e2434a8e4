#include "base/toml_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "base/escape.h"
#include "base/text.h"

namespace ms {
namespace {

// One pass over the text, a line at a time; brackets and long strings may go on to the next one.
class MistakeScanner {
 public:
  explicit MistakeScanner(std::string_view text) : text_(text) {}

  std::optional<SyntaxProblem> first() {
    while (!problem_ && at_ < text_.size()) line();
    if (!problem_ && !open_.empty()) report_open();
    return problem_;
  }

 private:
  struct Open {
    char bracket;
    std::size_t at, line, line_begin;
  };

  char peek() const { return at_ < text_.size() ? text_[at_] : '\n'; }
  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\r') ++at_;
  }
  std::string_view rest_of_line() const {
    return text_.substr(at_, std::min(text_.find('\n', at_), text_.size()) - at_);
  }

  void report(std::size_t at, std::string message) {
    if (!problem_) problem_ = {line_, at - line_begin_ + 1, std::move(message)};
  }
  void report_open() {
    const Open& open = open_.back();
    problem_ = {open.line, open.at - open.line_begin + 1, fmt::format("'{}' is not closed", open.bracket)};
  }

  void line() {
    skip_blanks();
    const bool header = open_.empty() && peek() == '[';
    if (open_.empty() && !header && peek() != '\n' && peek() != '#') key();
    while (!problem_ && peek() != '\n' && peek() != '#') value_char();
    if (problem_) return;
    if (peek() == '#') at_ += rest_of_line().size();
    // Tables in braces, and headers, end with their line.
    if (!open_.empty() && (header || open_.back().bracket == '{')) return report_open();
    ++at_, ++line_, line_begin_ = at_;
  }

  // "key = ", up to the value.
  void key() {
    const std::size_t begin = at_;
    while (peek() != '=' && peek() != '\n' && peek() != '#' && !problem_) {
      if (peek() == '"' || peek() == '\'') {
        string();
      } else {
        ++at_;
      }
    }
    if (problem_) return;
    if (peek() != '=') return report(begin, "expected KEY = VALUE or [SECTION]");
    const std::size_t equals = at_++;
    skip_blanks();
    if (peek() == '\n' || peek() == '#') return report(equals, "a value is missing behind '='");
    bare_word();
  }

  // A word is a value only if TOML knows it.
  void bare_word() {
    const std::string_view rest = rest_of_line();
    const auto needs_quotes = [&] {
      report(at_, fmt::format("a string needs quotes: \"{}\"", trim(rest.substr(0, rest.find('#')))));
    };
    const auto is_part = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_';
    };
    const std::string_view word =
        rest.substr(0, static_cast<std::size_t>(std::find_if_not(rest.begin(), rest.end(), is_part) - rest.begin()));
    const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
    if (word.empty()) {
      if (rest.starts_with('/') || rest.starts_with('~') || rest.starts_with('$')) needs_quotes();
      return bare_point(rest, rest.starts_with('+') || rest.starts_with('-') ? 1 : 0);
    }
    if (rest.starts_with("./") || rest.starts_with("../")) return needs_quotes();
    bare_point(rest, 0);
    const bool has_unit = is_letter(word.back()) && (parse_duration_s(word) || parse_size_bytes(word));
    if (!is_letter(word.front()) && !has_unit) return;
    if (word == "true" || word == "false" || word == "inf" || word == "nan") return;
    const std::string lower = [&] {
      std::string text(word);
      std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      return text;
    }();
    if (lower == "true" || lower == "false") return report(at_, fmt::format("{} is written {}", word, lower));
    needs_quotes();
  }

  // TOML's numbers have digits on both sides of the point.
  void bare_point(std::string_view rest, std::size_t sign) {
    std::string_view number = rest.substr(sign);
    number = number.substr(0, number.find_first_not_of("0123456789."));
    if (number.size() < 2 || std::ranges::count(number, '.') != 1) return;
    const std::string_view before = rest.substr(0, sign);
    if (number.front() == '.') report(at_, fmt::format("a number begins with a digit: {}0{}", before, number));
    if (number.back() == '.') report(at_, fmt::format("a number ends with a digit: {}{}0", before, number));
  }

  void value_char() {
    const char c = peek();
    if (c == '"' || c == '\'') return string();
    if (c == '[' || c == '{') open_.push_back({c, at_, line_, line_begin_});
    if (c == ']' || c == '}') {
      const char opening = c == ']' ? '[' : '{';
      if (open_.empty()) return report(at_, fmt::format("'{}' closes nothing", c));
      if (open_.back().bracket != opening) return report_open();
      open_.pop_back();
    }
    ++at_;
  }

  void string() {
    const char quote = peek();
    const std::string three(3, quote);
    const std::size_t begin = at_;
    const bool is_long = text_.substr(at_).starts_with(three);
    at_ += is_long ? 3 : 1;
    while (at_ < text_.size()) {
      if (quote == '"' && text_[at_] == '\\') {
        at_ += 2;
        continue;
      }
      if (is_long ? text_.substr(at_).starts_with(three) : text_[at_] == quote) {
        at_ += is_long ? 3 : 1;
        return;
      }
      if (text_[at_] == '\n') {
        if (!is_long) break;
        ++line_, line_begin_ = at_ + 1;
      }
      ++at_;
    }
    if (is_long) return report(line_begin_, fmt::format("a string that begins with {} is not closed", three));
    report(begin, fmt::format("the string that begins with {} is not closed", quote));
  }

  std::string_view text_;
  std::size_t at_ = 0, line_ = 1, line_begin_ = 0;
  std::vector<Open> open_;
  std::optional<SyntaxProblem> problem_;
};

// How deep the values of a text nest, character by character: brackets, and the dots of the keys before each of them.
class Nesting {
 public:
  // Depth behind the character.
  std::size_t after(char c) {
    if (c == '[' || c == '{') dots_.push_back(0);
    if ((c == ']' || c == '}') && dots_.size() > 1) {
      all_dots_ -= dots_.back();
      dots_.pop_back();
    }
    if (c == '.') ++dots_.back(), ++all_dots_;
    if (c == ',' || (c == '\n' && dots_.size() == 1)) all_dots_ -= std::exchange(dots_.back(), 0);
    return dots_.size() - 1 + all_dots_;
  }

 private:
  std::vector<std::size_t> dots_{0};  // of each bracket that is open, the line's first
  std::size_t all_dots_ = 0;
};

}  // namespace

std::optional<SyntaxProblem> common_toml_mistake(std::string_view text) { return MistakeScanner(text).first(); }

std::optional<SyntaxProblem> unfit_for_toml(std::string_view text, const TomlBounds& bounds) {
  if (text.size() > bounds.bytes)
    return SyntaxProblem{1, 1, fmt::format("{} bytes, at most {} are read", text.size(), bounds.bytes)};
  Nesting nesting;
  std::size_t line = 1, line_begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto problem = [&](std::string message) {
      return SyntaxProblem{line, at - line_begin + 1, std::move(message)};
    };
    const std::size_t bytes = utf8_bytes(text.substr(at));
    if (bytes == 0) return problem(fmt::format("byte 0x{:02x} is not UTF-8", static_cast<unsigned char>(text[at])));
    if (at - line_begin >= bounds.line_bytes)
      return problem(fmt::format("a line of more than {} bytes", bounds.line_bytes));
    if (nesting.after(text[at]) > bounds.nesting)
      return problem(fmt::format("nested deeper than {} levels", bounds.nesting));
    at += bytes;
    if (text[at - 1] != '\n') continue;
    ++line, line_begin = at;
    if (line > bounds.lines && at < text.size()) return problem(fmt::format("more than {} lines", bounds.lines));
  }
  return std::nullopt;
}

}  // namespace ms
