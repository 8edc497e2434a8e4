// The normalizer of a tokenizer.json, with the results of Hugging Face's tokenizers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/charsmap.h"
#include "data/pattern.h"
#include "data/unicode.h"

namespace ms::data {

// A text or a pattern that is looked for: matches do not overlap, and none is empty.
class Needle {
 public:
  // Error("data.tokenizer", user): the text is empty, or as Pattern's.
  Needle(std::string text, bool is_pattern);
  std::optional<Pattern::Match> find(std::string_view text, std::size_t from, Pattern::Scratch& scratch) const;

 private:
  std::string text_;
  std::optional<Pattern> pattern_;
};

struct NormalizerStep {
  enum class Kind { form, prepend, replace, replace_pattern, strip_left, strip_right, characters, charsmap };
  Kind kind = Kind::form;
  std::string content = {};  // is put before a text that is not empty, or in the place of
  std::string replaced = {};
  NormalForm form = NormalForm::c;
  CharacterMap map = nullptr;  // of each of the characters
  std::shared_ptr<const Charsmap> charsmap = {};
};

class Normalizer {
 public:
  explicit Normalizer(const std::vector<NormalizerStep>& steps);
  // A part of `text`, or of one of the two storages.
  std::string_view normalize(std::string_view text, std::string (&storage)[2], Pattern::Scratch& scratch) const;

 private:
  std::vector<NormalizerStep> steps_;
  std::vector<std::optional<Needle>> needles_;  // of each step
};

// The text with `content` for each match. Error("data.tokenizer", user): it has more than `max_bytes`.
void replace_matches(std::string_view text, const Needle& needle, std::string_view content, std::size_t max_bytes,
                     std::string& result, Pattern::Scratch& scratch);
// So much may become of a text.
inline std::size_t max_replaced_bytes(std::string_view text) { return 64 * text.size() + (std::size_t{1} << 20U); }

}  // namespace ms::data
