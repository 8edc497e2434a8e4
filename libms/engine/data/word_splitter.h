// Splits normalised text into the words that the model works on, as the pre-tokenizer of a tokenizer.json says.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/normalize.h"
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

// How text is split at matches. `contiguous` leaves matches beside each other together.
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

struct SplitStep {
  enum class Kind {
    pattern,       // splits at matches of `text`
    literal,       // splits where `text` stands
    replace,       // puts `content` in the place of `text`
    prefix,        // puts `text` before a piece that does not begin with it
    first_prefix,  // the same, but only for what the document begins with
  };
  Kind kind = Kind::pattern;
  std::string text;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  // what lies between matches is a match
  std::string content = {};
};

class WordSplitter {
 public:
  // Each step works on what the ones before it left. Published patterns are matched by hand-written code, others and
  // with `by_pcre2` all by PCRE2. Errors as Pattern's.
  explicit WordSplitter(const std::vector<SplitStep>& steps, bool by_pcre2 = false);

  // Calls `on_word` with each word of `text`, which is UTF-8; none is empty. `is_first`: a document begins with it.
  void split(std::string_view text, bool is_first, Pattern::Scratch& scratch,
             const std::function<void(std::string_view)>& on_word) const;

 private:
  using Use = std::function<void(std::string_view)>;
  struct Step {
    SplitStep what;
    std::unique_ptr<PublishedPattern> published;  // or else
    std::optional<Needle> needle;
  };
  void split(std::size_t step, std::string_view text, bool is_first, Pattern::Scratch& scratch,
             const Use& on_word) const;
  template <class OnPiece>
  static void split_at(const Step& step, std::string_view text, Pattern::Scratch& scratch, const OnPiece& piece);

  std::vector<Step> steps_;
};

}  // namespace ms::data
