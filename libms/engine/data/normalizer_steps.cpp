// The normalizers of a tokenizer.json.
#include "data/tokenizer_step.h"

namespace ms::data {
namespace {

using Kind = NormalizerStep::Kind;

// A step that has no more than a type.
template <NormalForm kForm>
void read_form(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section checked(step.json, step.path, {"type"});
  spec.normalizer.push_back({.form = kForm});
}

template <CharacterMap kMap>
void read_map(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section checked(step.json, step.path, {"type"});
  spec.normalizer.push_back({.kind = Kind::characters, .map = kMap});
}

void read_prepend(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section section(step.json, step.path, {"type", "prepend"});
  spec.normalizer.push_back({Kind::prepend, section.text("prepend")});
}

void read_replace(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section section(step.json, step.path, {"type", "pattern", "content"});
  auto [is_pattern, text] = read_pattern(section);
  spec.normalizer.push_back(
      {is_pattern ? Kind::replace_pattern : Kind::replace, section.text("content"), std::move(text)});
}

void read_strip(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section section(step.json, step.path, {"type", "strip_left", "strip_right"});
  if (section.flag("strip_left", {})) spec.normalizer.push_back({Kind::strip_left});
  if (section.flag("strip_right", {})) spec.normalizer.push_back({Kind::strip_right});
}

void read_bert(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section section(step.json, step.path,
                        {"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  const bool lowers = section.flag("lowercase", {});
  const auto add = [&](CharacterMap map) { spec.normalizer.push_back({.kind = Kind::characters, .map = map}); };
  if (section.flag("clean_text", {})) add(clean);
  if (section.flag("handle_chinese_chars", {})) add(spaced_chinese);
  if (section.flag("strip_accents", lowers)) {
    spec.normalizer.push_back({.form = NormalForm::d});
    add(without_nonspacing_marks);
  }
  if (lowers) add(lower_case);
}

void read_precompiled(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section section(step.json, step.path, {"type", "precompiled_charsmap"});
  spec.normalizer.push_back(
      {.kind = Kind::charsmap, .charsmap = std::make_shared<Charsmap>(section.text("precompiled_charsmap"))});
}

constexpr TokenizerStepRow kNormalizers[] = {{"BertNormalizer", read_bert},
                                             {"Lowercase", read_map<lower_case>},
                                             {"NFC", read_form<NormalForm::c>},
                                             {"NFD", read_form<NormalForm::d>},
                                             {"NFKC", read_form<NormalForm::kc>},
                                             {"NFKD", read_form<NormalForm::kd>},
                                             {"Precompiled", read_precompiled},
                                             {"Prepend", read_prepend},
                                             {"Replace", read_replace},
                                             {"Strip", read_strip},
                                             {"StripAccents", read_map<without_marks>}};

}  // namespace

std::span<const TokenizerStepRow> normalizer_rows() { return kNormalizers; }

}  // namespace ms::data
