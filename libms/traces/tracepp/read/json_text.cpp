#include "tracepp/read/json_text.h"

#include <algorithm>
#include <cstring>

namespace ms::tracepp {
namespace {

constexpr std::size_t kWindowBytes = 1 << 19;
constexpr std::size_t kNone = std::string_view::npos;

constexpr bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// Where a string that begins at `from`, a quote, ends: behind its other quote.
std::size_t string_end(std::string_view text, std::size_t from) {
  for (std::size_t i = from + 1; i < text.size(); ++i) {
    const std::size_t quote = text.find('"', i);
    if (quote == kNone) return kNone;
    std::size_t slashes = 0;
    while (text[quote - 1 - slashes] == '\\') ++slashes;  // stops at the first quote
    if (slashes % 2 == 0) return quote + 1;
    i = quote;
  }
  return kNone;
}

// Something like `}, {"`, seen from its end: returns the place behind the brace. Inside a string a quote would come
// with a backslash before it.
std::size_t guessed_end(std::string_view text) {
  for (std::size_t brace = text.rfind('{'); brace != kNone && brace > 0; brace = text.rfind('{', brace - 1)) {
    std::size_t next = brace + 1;
    while (next < text.size() && is_space(text[next])) ++next;
    if (next == text.size() || text[next] != '"') continue;
    std::size_t before = brace;
    while (before > 0 && is_space(text[before - 1])) --before;
    if (before == 0 || text[before - 1] != ',') continue;
    --before;
    while (before > 0 && is_space(text[before - 1])) --before;
    if (before > 0 && text[before - 1] == '}') return before;
  }
  return kNone;
}

}  // namespace

bool begins_json(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return false;
  if (text[first] != '[') return text[first] == '{';
  // Lines of logs begin with a bracket, too: "[2025-11-26 10:00:00] iteration", "[rank7]:[E419", "[1,0]<stdout>:".
  const std::size_t behind = text.find_first_not_of("0123456789,", first + 1);
  if (behind == std::string_view::npos) return true;
  const bool has_number = behind > first + 1, is_letter = (text[behind] | 0x20) >= 'a' && (text[behind] | 0x20) <= 'z';
  const bool is_label = has_number && text[behind] == ']' && behind + 1 < text.size() &&
                        (text[behind + 1] == ':' || text[behind + 1] == '<');
  return !is_label && !is_letter && !(has_number && text[behind] == '-');
}

JsonText::JsonText(TextInput& input) : input_(input), buffer_(kWindowBytes) {}

bool JsonText::fill(std::size_t bytes) {
  if (end_ - at_ >= bytes || ended_) return false;
  if (bytes > kMaxValueBytes) {
    ended_ = gave_up_ = true;
    return false;
  }
  std::memmove(buffer_.data() + 1, buffer_.data() + at_, end_ - at_);
  end_ -= at_ - 1;
  at_ = 1;
  if (buffer_.size() < 1 + bytes + kPadding) buffer_.resize(1 + 2 * bytes + kPadding);
  const std::size_t count = input_.read(std::span(buffer_).subspan(end_, buffer_.size() - kPadding - end_));
  end_ += count;
  if (count == 0) ended_ = true;
  return count > 0;
}

char JsonText::peek() {
  for (;;) {
    while (at_ < end_ && is_space(buffer_[at_])) ++at_;
    if (at_ < end_) return buffer_[at_];
    if (!fill(1)) return '\0';
  }
}

std::size_t JsonText::value_end(std::size_t from) const {
  const std::string_view text(buffer_.data(), end_);
  std::size_t depth = 0;
  for (std::size_t i = from; i < text.size(); ++i) {
    switch (text[i]) {
      case '"':
        i = string_end(text, i);
        if (i == kNone) return kNone;
        if (depth == 0) return i;
        --i;
        break;
      case '{':
      case '[': ++depth; break;
      case '}':
      case ']':
        if (depth == 0) return i;  // behind a number or a word
        if (--depth == 0) return i + 1;
        break;
      case ',':
      case ':':
        if (depth == 0) return i;
        break;
      default: break;
    }
  }
  return kNone;
}

std::optional<std::string_view> JsonText::value() {
  if (peek() == '\0') return std::nullopt;
  for (;;) {
    const std::size_t end = value_end(at_);
    if (end != kNone) {
      const std::string_view found(buffer_.data() + at_, end - at_);
      at_ = end;
      return found;
    }
    if (!fill(2 * (end_ - at_))) return std::nullopt;
  }
}

std::optional<std::string_view> JsonText::key() {
  if (peek() != '"') return std::nullopt;
  std::size_t end = kNone;
  while ((end = string_end({buffer_.data(), end_}, at_)) == kNone) {
    if (!fill(2 * (end_ - at_))) return std::nullopt;
  }
  // The colon has to be in the window too before anything is handed out.
  for (std::size_t colon = end - at_;; ++colon) {
    if (at_ + colon == end_ && !fill(colon + 1)) return std::nullopt;
    const char c = buffer_[at_ + colon];
    if (is_space(c)) continue;
    if (c != ':') return std::nullopt;
    const std::size_t length = std::string_view(buffer_.data() + at_, colon).find_last_of('"') + 1;
    const std::string_view found(buffer_.data() + at_, length);
    at_ += colon + 1;
    return found;
  }
}

std::span<char> JsonText::piece(std::size_t goal_bytes, bool exact) {
  if (peek() == '\0') return {};
  fill(goal_bytes);
  if (!exact) {
    const std::size_t end = guessed_end({buffer_.data() + at_, std::min(goal_bytes, end_ - at_)});
    if (end != kNone) return {buffer_.data() + at_, end};
  }
  std::size_t end = at_;
  do {
    std::size_t from = end;
    while (from < end_ && (is_space(buffer_[from]) || buffer_[from] == ',')) ++from;
    if (from == end_ || buffer_[from] == ']' || buffer_[from] == '}') break;
    std::size_t next = value_end(from);
    while (next == kNone && end == at_) {  // not even one
      from -= at_;
      if (!fill(2 * (end_ - at_))) return {};
      from += at_;
      end = at_;
      next = value_end(from);
    }
    if (next == kNone) break;
    if (next == from) ++next;  // a colon
    end = next;
  } while (end - at_ < goal_bytes);
  return {buffer_.data() + at_, end - at_};
}

}  // namespace ms::tracepp
