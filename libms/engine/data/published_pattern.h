// The patterns of GPT-2, Llama 3 and Qwen 2, matched by code instead of PCRE2, which takes several times as long.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ms::data {

class PublishedPattern {
 public:
  enum class Kind { gpt2, llama3, qwen2 };

  explicit PublishedPattern(Kind kind);

  // Where the match that begins at byte `at` ends; every character of a text belongs to one. `text` is UTF-8, and `at`
  // is below its size.
  std::size_t match_end(std::string_view text, std::size_t at) const;

 private:
  enum class Class : std::uint8_t { other, letter, number, space };
  struct Character {
    Class kind = Class::other;
    std::size_t end = 0;
  };

  void classify(std::string_view category, Class kind);
  Character character(std::string_view text, std::size_t at) const;
  std::size_t run_end(std::string_view text, std::size_t at, Class kind) const;
  std::size_t contraction_end(std::string_view text, std::size_t at) const;
  std::size_t gpt2_end(std::string_view text, std::size_t at) const;
  std::size_t llama3_end(std::string_view text, std::size_t at) const;
  std::size_t space_end(std::string_view text, std::size_t at, std::size_t run) const;

  Kind kind_;
  std::vector<Class> classes_;  // of the code points below kClassified; of those behind, other
};

}  // namespace ms::data
