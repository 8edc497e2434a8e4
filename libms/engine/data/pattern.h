// Patterns that split text into words, matched by PCRE2. Only pattern.cpp knows PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

namespace ms::data {

// Members of a class: the characters that Rust's regular expressions call \w. They are alphabetic ones, marks, decimal
// digits, connecting punctuation and joiners. Of the alphabetic ones, those in no category of letters, marks or numbers
// are symbols in circles and the like. Of the numbers, the decimal digits are those below; of the others, letters (Nl)
// belong to \w.
inline constexpr std::string_view kWordCharacters = R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc})"
                                                    "\xe2\x80\x8c\xe2\x80\x8d\xe2\x92\xb6-\xe2\x93\xa9"
                                                    "\xf0\x9f\x84\xb0-\xf0\x9f\x85\x89\xf0\x9f\x85\x90-\xf0\x9f\x85\xa9"
                                                    "\xf0\x9f\x85\xb0-\xf0\x9f\x86\x89";

class Pattern {
 public:
  struct Match {
    std::size_t begin = 0, end = 0;  // bytes of the text; end is above begin
  };

  // Memory of one thread's matching, for any number of patterns.
  class Scratch {
   public:
    Scratch();
    Scratch(Scratch&&) noexcept;
    ~Scratch();

   private:
    friend class Pattern;
    struct Memory;
    std::unique_ptr<Memory> memory_;
  };

  // Compiles the portable_pattern() of `pattern`. Error("data.tokenizer", user): it is not portable, is no pattern, or
  // matches the empty text.
  explicit Pattern(std::string_view pattern);
  Pattern(Pattern&&) noexcept;
  ~Pattern();

  // The first match in `text`, which is UTF-8, from byte `from` on. What stands before is seen by look-behind only.
  // Error("data.tokenizer", user): the match takes more steps or memory than are allowed.
  std::optional<Match> find(std::string_view text, std::size_t from, Scratch& scratch) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace ms::data
