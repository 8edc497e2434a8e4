// Patterns that split text into words, matched by PCRE2. Only pattern.cpp knows PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

namespace ms::data {

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
