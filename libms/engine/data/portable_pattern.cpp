#include "data/portable_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "data/utf8.h"

namespace ms::data {
namespace {

constexpr std::size_t kMaxPatternBytes = 1 << 14;
constexpr int kMaxGroups = 32;     // inside each other
constexpr int kMaxRepeats = 1000;  // PCRE2 copies what is repeated

// PCRE2's \s has U+180E, too, and a PCRE2 before Unicode 4.1 lacks U+0085.
constexpr std::string_view kWhiteSpace =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// Characters that Unicode 15 and 16 assigned to a general category, which Unicode 14 (PCRE2 10.42) does not know.
struct Assigned {
  std::string_view category, members;
};
constexpr Assigned kAssigned[] = {
    {"Lu", R"(\x{1C89}\x{A7CB}-\x{A7CC}\x{A7DA}\x{A7DC}\x{10D50}-\x{10D65})"},
    {"Ll", R"(\x{1C8A}\x{A7CD}\x{A7DB}\x{10D70}-\x{10D85}\x{1DF25}-\x{1DF2A})"},
    {"Lm", R"(\x{10D4E}\x{10D6F}\x{16D40}-\x{16D42}\x{16D6B}-\x{16D6C}\x{1E030}-\x{1E06D}\x{1E4EB})"},
    {"Lo", R"(\x{105C0}-\x{105F3}\x{10D4A}-\x{10D4D}\x{10D4F}\x{10EC2}-\x{10EC4}\x{1123F}-\x{11240})"
           R"(\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7}\x{113D1}\x{113D3})"
           R"(\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F}\x{13441}-\x{13446})"
           R"(\x{13460}-\x{143FA}\x{16100}-\x{1611D}\x{16D43}-\x{16D6A}\x{18CFF}\x{1B132}\x{1B155})"
           R"(\x{1E4D0}-\x{1E4EA}\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
    {"M", R"(\x{897}\x{CF3}\x{ECE}\x{10D69}-\x{10D6D}\x{10EFC}-\x{10EFF}\x{11241}\x{113B8}-\x{113C0}\x{113C2})"
          R"(\x{113C5}\x{113C7}-\x{113CA}\x{113CC}-\x{113D0}\x{113D2}\x{113E1}-\x{113E2}\x{11F00}-\x{11F01})"
          R"(\x{11F03}\x{11F34}-\x{11F3A}\x{11F3E}-\x{11F42}\x{11F5A}\x{13440}\x{13447}-\x{13455})"
          R"(\x{1611E}-\x{1612F}\x{1E08F}\x{1E4EC}-\x{1E4EF}\x{1E5EE}-\x{1E5EF})"},
    {"Nd", R"(\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59}\x{16130}-\x{16139})"
           R"(\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})"},
    {"No", R"(\x{1D2C0}-\x{1D2D3})"},
    {"P", R"(\x{1B4E}-\x{1B4F}\x{1B7F}\x{10D6E}\x{113D4}-\x{113D5}\x{113D7}-\x{113D8}\x{11B00}-\x{11B09}\x{11BE1})"
          R"(\x{11F43}-\x{11F4F}\x{16D6D}-\x{16D6F}\x{1E5FF})"},
    {"S", R"(\x{2427}-\x{2429}\x{2FFC}-\x{2FFF}\x{31E4}-\x{31E5}\x{31EF}\x{10D8E}-\x{10D8F}\x{1CC00}-\x{1CCEF})"
          R"(\x{1CD00}-\x{1CEB3}\x{1F6DC}\x{1F774}-\x{1F776}\x{1F77B}-\x{1F77F}\x{1F7D9}\x{1F8B2}-\x{1F8BB})"
          R"(\x{1F8C0}-\x{1F8C1}\x{1FA75}-\x{1FA77}\x{1FA87}-\x{1FA89}\x{1FA8F}\x{1FAAD}-\x{1FAAF})"
          R"(\x{1FABB}-\x{1FABF}\x{1FAC6}\x{1FACE}-\x{1FACF}\x{1FADA}-\x{1FADC}\x{1FADF}\x{1FAE8}-\x{1FAE9})"
          R"(\x{1FAF7}-\x{1FAF8}\x{1FBCB}-\x{1FBEF})"},
};
constexpr std::string_view kCategories[] = {"L", "Lu", "Ll", "Lt", "Lm", "Lo", "M",
                                            "N", "Nd", "Nl", "No", "P",  "Pc", "S"};

class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : text_(pattern) {}

  std::string read() {
    if (text_.size() > kMaxPatternBytes) refuse(fmt::format("it has more than {} bytes", kMaxPatternBytes));
    alternatives(0);
    if (at_ < text_.size()) refuse("')' closes no group");
    return out_;
  }

 private:
  [[noreturn]] void refuse(std::string_view why) const {
    throw user_error("data.tokenizer",
                     fmt::format("the pattern '{}' is not one that is known to mean the same in PCRE2 "
                                 "as in Oniguruma, which Hugging Face's tokenizers uses: {} (byte {})",
                                 text_, why, at_));
  }

  bool next_is(std::string_view expected) const { return text_.substr(at_).starts_with(expected); }
  bool take(std::string_view expected) {
    if (!next_is(expected)) return false;
    at_ += expected.size();
    return true;
  }

  void alternatives(int depth) {
    while (at_ < text_.size() && !next_is(")")) {
      if (take("|")) {
        out_ += '|';
        continue;
      }
      if (atom(depth)) quantifier();
    }
  }

  // Reads one; returns whether a quantifier may follow.
  bool atom(int depth) {
    if (next_is("(")) return group(depth);
    if (take("[")) {
      character_class();
      return true;
    }
    if (take("\\")) {
      escape();
      return true;
    }
    for (const std::string_view special : {"^", "$", ".", "*", "+", "?", "{", "}", "]"})
      if (next_is(special)) refuse(fmt::format("'{}'", special));
    literal(next_character());
    return true;
  }

  bool group(int depth) {
    if (depth == kMaxGroups) refuse("its groups are nested too deeply");
    if (take("(?i:")) {
      any_case();
      return true;
    }
    bool looks = false;
    std::string_view opening = "(";
    for (const std::string_view other : {"(?:", "(?=", "(?!"})
      if (next_is(other)) opening = other;
    looks = opening.ends_with('=') || opening.ends_with('!');
    take(opening);
    if (next_is("?") || next_is("*")) refuse("a group of another kind than ( (?: (?i: (?= and (?!");
    out_ += opening;
    alternatives(depth + 1);
    if (!take(")")) refuse("a group is not closed");
    out_ += ')';
    return !looks;
  }

  // Words of ASCII letters, as in (?i:'s|'re). Other letters, and those pairs that Oniguruma takes for one letter in
  // another case (ss for U+00DF), are refused.
  void any_case() {
    out_ += "(?i:";
    char before = 0;
    for (; !next_is(")"); ++at_) {
      if (at_ == text_.size()) refuse("a group is not closed");
      const char c = text_[at_];
      const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      if (lower != '\'' && lower != '|' && !(lower >= 'a' && lower <= 'z'))
        refuse("a (?i: of other than ASCII letters");
      for (const std::string_view pair : {"ss", "st", "ff", "fi", "fl"})
        if (before == pair[0] && lower == pair[1]) refuse("two letters in (?i: that one letter stands for");
      out_ += c;
      before = lower;
    }
    ++at_;
    out_ += ')';
  }

  void quantifier() {
    if (take("{")) {
      const std::string_view counts = text_.substr(at_, std::min(text_.find('}', at_), text_.size()) - at_);
      const std::size_t comma = counts.find(',');
      const auto least = count(counts.substr(0, comma));
      const auto most = comma == std::string_view::npos || comma + 1 == counts.size()
                            ? std::optional<std::int64_t>(kMaxRepeats)
                            : count(counts.substr(comma + 1));
      if (!least || !most || *least > *most) refuse("a quantifier other than {n}, {n,} and {n,m}");
      at_ += counts.size();
      if (!take("}")) refuse("a quantifier other than {n}, {n,} and {n,m}");
      out_ += fmt::format("{{{}}}", counts);
      if (next_is("+") || next_is("?")) refuse("'+' or '?' behind '}'");
      return;
    }
    for (const std::string_view times : {"*", "+", "?"}) {
      if (!take(times)) continue;
      out_ += times;
      if (take("+"))
        out_ += '+';
      else if (take("?"))
        out_ += '?';
      return;
    }
  }

  static std::optional<std::int64_t> count(std::string_view digits) {
    if (digits.empty() || digits.size() > 4 || !std::all_of(digits.begin(), digits.end(), is_digit)) return {};
    std::int64_t number = 0;
    for (const char digit : digits) number = 10 * number + (digit - '0');
    return number <= kMaxRepeats ? std::optional(number) : std::nullopt;
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_punctuation(char32_t c) {
    return (c > 0x20 && c < 0x30) || (c > 0x39 && c < 0x41) || (c > 0x5a && c < 0x61) || (c > 0x7a && c < 0x7f);
  }

  char32_t next_character() {
    if (at_ == text_.size()) refuse("it ends too early");
    const CodePoint next = code_point_at(text_, at_);
    at_ += next.bytes;
    return next.value;
  }

  void literal(char32_t c) {
    if (is_punctuation(c)) out_ += '\\';
    if (c == 0) refuse("a NUL byte");
    append_utf8(out_, c);
  }

  // The character behind a backslash, where it means one character in both; nullopt: it means a set.
  std::optional<char32_t> escaped_character() {
    const char32_t c = next_character();
    if (c == 'n') return '\n';
    if (c == 'r') return '\r';
    if (c == 't') return '\t';
    if (c == 'f') return '\f';
    if (is_punctuation(c)) return c;
    return {};
  }

  // Behind a backslash, outside of classes.
  void escape() {
    const std::size_t begin = at_;
    if (const auto c = escaped_character()) {
      literal(*c);
      return;
    }
    at_ = begin;
    const bool negated = next_is("S") || next_is("P");
    out_ += negated ? "[^" : "[";
    out_ += set();
    out_ += ']';
  }

  // Behind a backslash: the members of a set, as a class has them, whether or not the letter is upper case.
  std::string set() {
    if (take("s") || take("S")) return std::string(kWhiteSpace);
    if (!next_is("p{") && !next_is("P{")) refuse(fmt::format("'\\{}'", text_.substr(at_, 1)));
    const std::string_view name = text_.substr(at_ + 2, std::min(text_.find('}', at_), text_.size()) - at_ - 2);
    if (std::find(std::begin(kCategories), std::end(kCategories), name) == std::end(kCategories))
      refuse(fmt::format("\\p{{{}}}, which is none of {}", name, fmt::join(kCategories, ", ")));
    at_ += name.size() + 3;
    std::string members = fmt::format("\\p{{{}}}", name);
    for (const Assigned& row : kAssigned)
      if (row.category.starts_with(name)) members += row.members;
    return members;
  }

  // Behind '['.
  void character_class() {
    out_ += '[';
    if (take("^")) out_ += '^';
    if (next_is("]")) refuse("']' as the first of a class");
    bool is_first = true;
    for (; !take("]"); is_first = false) {
      if (next_is("[")) refuse("'[' in a class");
      if (next_is("&&")) refuse("'&&' in a class");
      if (next_is("-") && !is_first && !next_is("-]")) refuse("'-' in a class that is no range");
      const std::optional<char32_t> first = class_character();
      if (!first) {
        if (next_is("S") || next_is("P")) refuse("\\S or \\P in a class");
        out_ += set();
        continue;
      }
      literal(*first);
      if (!next_is("-") || next_is("-]")) continue;
      ++at_;
      if (next_is("[")) refuse("'[' in a class");
      const std::optional<char32_t> last = class_character();
      if (!last || *last < *first) refuse("a range of characters without an end");
      out_ += '-';
      literal(*last);
    }
    out_ += ']';
  }

  // A character of a class; nullopt: a set, of which the backslash is read.
  std::optional<char32_t> class_character() {
    if (!take("\\")) return next_character();
    const std::size_t begin = at_;
    const auto c = escaped_character();
    if (!c) at_ = begin;
    return c;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string portable_pattern(std::string_view pattern) { return PatternReader(pattern).read(); }

}  // namespace ms::data
