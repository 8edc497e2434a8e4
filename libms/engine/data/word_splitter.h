// Splits normalised text into the words that byte-pair encoding works on, as the pre-tokenizer of a tokenizer.json
// says.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/pattern.h"
#include "data/published_pattern.h"

namespace ms::data {

// The patterns of GPT-2, Llama 3 and Qwen 2 as tokenizer.json files have them.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";

class WordSplitter {
 public:
  // `patterns` one after the other, each on what the ones before it left; then, with `add_prefix_space`, a blank before
  // each piece that begins with none; then, with `gpt2_pattern`, GPT-2's. Published patterns are matched by
  // hand-written code, others and with `by_pcre2` all by PCRE2. Errors as Pattern's.
  WordSplitter(const std::vector<std::string>& patterns, bool add_prefix_space, bool gpt2_pattern,
               bool by_pcre2 = false);

  // Calls `on_word` with each word of `text`, which is UTF-8. None is empty, and together they are the text, but for
  // the blanks that are added.
  void split(std::string_view text, Pattern::Scratch& scratch,
             const std::function<void(std::string_view)>& on_word) const;

 private:
  struct Step {
    std::unique_ptr<PublishedPattern> published;  // or else
    std::unique_ptr<Pattern> pattern;             // or else a blank is added
  };
  void split(std::size_t step, std::string_view text, Pattern::Scratch& scratch,
             const std::function<void(std::string_view)>& on_word) const;

  std::vector<Step> steps_;
};

}  // namespace ms::data
