#include "data/tokenizer_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "data/tokenizer_step.h"
#include "data/utf8.h"

namespace ms::data {
namespace {

constexpr std::size_t kMaxSteps = 16;  // of a Sequence, those of sequences in it counted
constexpr std::uint64_t kMaxId = std::uint64_t{1} << 24U;

void add_steps(const Json& json, const std::string& path, std::string_view members, std::vector<TokenizerStep>& steps) {
  if (!json.is_object()) refuse_field(path, "is not an object");
  const Json* const type = json.find("type");
  if (type == nullptr || !type->is_string()) refuse_field(path + ".type", "is missing or not a string");
  if (type->text() != "Sequence") {
    if (steps.size() == kMaxSteps) refuse_field(path, "has too many steps");
    steps.push_back({json, path, type->text()});
    return;
  }
  const Section sequence(json, path, {"type", members});
  const Json& list = sequence.get(members);
  if (!list.is_array()) refuse_field(sequence.at(members), "is not a list");
  std::size_t number = 0;
  for (const Json& member : list)
    add_steps(member, fmt::format("{}[{}]", sequence.at(members), number++), members, steps);
}

void read_each(const Section& file, std::string_view key, std::string_view members,
               std::span<const TokenizerStepRow> rows, TokenizerSpec& spec) {
  std::vector<TokenizerStep> steps;
  if (const Json* const json = file.find(key)) add_steps(*json, std::string(key), members, steps);
  for (const TokenizerStep& step : steps) {
    const auto row = std::ranges::find(rows, step.type, &TokenizerStepRow::type);
    if (row == rows.end()) {
      std::string known;
      for (const TokenizerStepRow& each : rows) known += fmt::format("{}, ", each.type);
      refuse_field(step.path + ".type", fmt::format("is '{}'; known are {}Sequence", step.type, known));
    }
    if (key == "pre_tokenizer" && spec.is_byte_level) refuse_field(step.path, "stands behind ByteLevel");
    row->read(step, spec);
  }
}

void read_byte_level(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section level(step.json, step.path, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (level.flag("add_prefix_space", {})) spec.splits.push_back({SplitStep::Kind::prefix, " "});
  if (level.flag("use_regex", true)) spec.splits.emplace_back().text = kGpt2Pattern;
  spec.is_byte_level = true;
}

SplitBehavior read_behavior(const Section& section, std::string_view key) {
  constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
      {"Isolated", SplitBehavior::isolated},
      {"Removed", SplitBehavior::removed},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous}};
  const std::string& name = section.text(key);
  for (const auto& [known, behavior] : kBehaviors)
    if (name == known) return behavior;
  refuse_field(section.at(key), fmt::format("is '{}', which is no way to split", name));
}

void read_split(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section split(step.json, step.path, {"type", "pattern", "behavior", "invert"});
  auto [is_pattern, text] = read_pattern(split);
  spec.splits.push_back({is_pattern ? SplitStep::Kind::pattern : SplitStep::Kind::literal, std::move(text),
                         read_behavior(split, "behavior"), split.flag("invert", false)});
}

void read_digits(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section digits(step.json, step.path, {"type", "individual_digits"});
  // With the numbers of Unicode 17.
  std::string pattern = "[\\p{N}\xf0\x91\xb7\xa0-\xf0\x91\xb7\xa9\xf0\x96\xbf\xb4-\xf0\x96\xbf\xb6]";
  if (!digits.flag("individual_digits", {})) pattern += '+';
  spec.splits.push_back({SplitStep::Kind::pattern, std::move(pattern)});
}

// Punctuation that Unicode 8 did not have, and tokenizers does not know; two that it had and that are symbols by now.
struct Range {
  char32_t first, last;
};
constexpr Range kLaterPunctuation[] = {
    {0x61d, 0x61d},     {0x9fd, 0x9fd},     {0xa76, 0xa76},     {0xc77, 0xc77},     {0xc84, 0xc84},
    {0x1b4e, 0x1b4f},   {0x1b7d, 0x1b7f},   {0x2e43, 0x2e4f},   {0x2e52, 0x2e5d},   {0x10d6e, 0x10d6e},
    {0x10ead, 0x10ead}, {0x10f55, 0x10f59}, {0x10f86, 0x10f89}, {0x113d4, 0x113d5}, {0x113d7, 0x113d8},
    {0x1144b, 0x1144f}, {0x1145a, 0x1145b}, {0x1145d, 0x1145d}, {0x11660, 0x1166c}, {0x116b9, 0x116b9},
    {0x1183b, 0x1183b}, {0x11944, 0x11946}, {0x119e2, 0x119e2}, {0x11a3f, 0x11a46}, {0x11a9a, 0x11a9c},
    {0x11a9e, 0x11aa2}, {0x11b00, 0x11b09}, {0x11be1, 0x11be1}, {0x11c41, 0x11c45}, {0x11c70, 0x11c71},
    {0x11ef7, 0x11ef8}, {0x11f43, 0x11f4f}, {0x11fff, 0x11fff}, {0x12ff1, 0x12ff2}, {0x16d6d, 0x16d6f},
    {0x16e97, 0x16e9a}, {0x16fe2, 0x16fe2}, {0x1e5ff, 0x1e5ff}, {0x1e95e, 0x1e95f}};

std::string punctuation_pattern() {
  std::string pattern = "(?![";
  for (const auto& [first, last] : kLaterPunctuation) {
    append_utf8(pattern, first);
    if (first == last) continue;
    pattern += '-';
    append_utf8(pattern, last);
  }
  return pattern + "])[\\p{P}\\$\\+<=>\\^`\\|~\xe1\x99\xad\xf0\x91\x87\x89]";
}

void read_punctuation(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section punctuation(step.json, step.path, {"type", "behavior"});
  const auto behavior =
      punctuation.find("behavior") == nullptr ? SplitBehavior::isolated : read_behavior(punctuation, "behavior");
  spec.splits.push_back({SplitStep::Kind::pattern, punctuation_pattern(), behavior});
}

// Words and what lies between them, without white space.
void read_whitespace(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section checked(step.json, step.path, {"type"});
  spec.splits.push_back(
      {SplitStep::Kind::pattern, fmt::format(R"([{0}]+|[^\s{0}]+)", kWordCharacters), SplitBehavior::removed, true});
}

void read_whitespace_split(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section checked(step.json, step.path, {"type"});
  spec.splits.push_back({SplitStep::Kind::pattern, R"(\s+)", SplitBehavior::removed});
}

void read_bert_words(const TokenizerStep& step, TokenizerSpec& spec) {
  read_whitespace_split(step, spec);
  spec.splits.push_back({SplitStep::Kind::pattern, punctuation_pattern()});
}

// Metaspace as a pre-tokenizer and as a decoder.
struct Metaspace {
  std::string replacement, scheme;
  bool splits;
};
Metaspace metaspace_of(const TokenizerStep& step) {
  const Section section(step.json, step.path,
                        {"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  Metaspace made{section.text("replacement"), "always", section.flag("split", true)};
  if (made.replacement.empty() || code_point_at(made.replacement, 0).bytes != made.replacement.size())
    refuse_field(section.at("replacement"), "is not one character");
  if (section.find("prepend_scheme") != nullptr) made.scheme = section.text("prepend_scheme");
  if (made.scheme != "always" && made.scheme != "first" && made.scheme != "never")
    refuse_field(section.at("prepend_scheme"), fmt::format("is '{}', not always, first or never", made.scheme));
  if (!section.flag("add_prefix_space", true) && made.scheme != "never")
    refuse_field(section.at("add_prefix_space"), "is false, and prepend_scheme is not 'never'");
  return made;
}

bool moves_begin(const NormalizerStep& step) {
  using enum NormalizerStep::Kind;
  if (step.kind == replace || step.kind == replace_pattern) return step.content.empty();
  if (step.kind == characters) return step.map != lower_case;
  return step.kind == prepend || step.kind == strip_left;
}

void read_metaspace(const TokenizerStep& step, TokenizerSpec& spec) {
  const Metaspace meta = metaspace_of(step);
  const bool is_first = meta.scheme == "first";
  // Whether a text begins at the document's begin is known as long as that has not moved.
  if (is_first && (!spec.splits.empty() || std::ranges::any_of(spec.normalizer, moves_begin)))
    refuse_field(
        step.path + ".prepend_scheme",
        "is 'first' behind other steps than normal forms, Precompiled, Lowercase, Strip on the right and a Replace "
        "with a text");
  spec.splits.push_back({.kind = SplitStep::Kind::replace, .text = " ", .content = meta.replacement});
  if (meta.scheme != "never")
    spec.splits.push_back({is_first ? SplitStep::Kind::first_prefix : SplitStep::Kind::prefix, meta.replacement});
  if (meta.splits) spec.splits.push_back({SplitStep::Kind::literal, meta.replacement, SplitBehavior::merged_with_next});
}

constexpr TokenizerStepRow kPreTokenizers[] = {{"BertPreTokenizer", read_bert_words},
                                               {"ByteLevel", read_byte_level},
                                               {"Digits", read_digits},
                                               {"Metaspace", read_metaspace},
                                               {"Punctuation", read_punctuation},
                                               {"Split", read_split},
                                               {"Whitespace", read_whitespace},
                                               {"WhitespaceSplit", read_whitespace_split}};

// One piece of a template, as {"SpecialToken": {"id": "<s>", "type_id": 0}}.
void read_piece(const Json& json, const std::string& path, const Section& special, bool& has_text,
                std::vector<std::int32_t>& tokens) {
  const Section piece(json, path, {"SpecialToken", "Sequence"});
  const std::string_view kind = piece.find("Sequence") != nullptr ? "Sequence" : "SpecialToken";
  const Section inside(piece.get(kind), piece.at(kind), {"id", "type_id"});
  const std::string& id = inside.text("id");
  if (kind == "Sequence") {
    if (id != "A" || has_text) refuse_field(inside.at("id"), "is not the one A of a template for one text");
    has_text = true;
    return;
  }
  const Section named(special.get(id), special.at(id), {"id", "ids", "tokens"});
  const Json& ids = named.get("ids");
  if (!ids.is_array() || ids.size() > kMaxSteps) refuse_field(named.at("ids"), "is not a short list");
  for (const Json& number : ids) {
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() >= kMaxId)
      refuse_field(named.at("ids"), fmt::format("{} is not the id of a token", number.dump()));
    tokens.push_back(static_cast<std::int32_t>(number.get<std::uint64_t>()));
  }
}

// The last template stands outermost.
void read_template(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section section(step.json, step.path, {"type", "single", "pair", "special_tokens"});
  const Section special(section.get("special_tokens"), section.at("special_tokens"), {}, true);
  const Json& single = section.get("single");
  if (!single.is_array() || single.size() > kMaxSteps) refuse_field(section.at("single"), "is not a short list");
  std::vector<std::int32_t> before, behind;
  bool has_text = false;
  std::size_t number = 0;
  for (const Json& piece : single)
    read_piece(piece, fmt::format("{}[{}]", section.at("single"), number++), special, has_text,
               has_text ? behind : before);
  if (!has_text) refuse_field(section.at("single"), "has no text A");
  spec.before.insert(spec.before.begin(), before.begin(), before.end());
  spec.behind.insert(spec.behind.end(), behind.begin(), behind.end());
}

// BertProcessing and RobertaProcessing: ["[CLS]", 101] stands before a text, and "sep" behind it.
void read_cls_and_sep(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section section(step.json, step.path, {"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
  const auto token = [&](std::string_view key) {
    const Json& pair = section.get(key);
    if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number_unsigned() || pair[1].get<std::uint64_t>() >= kMaxId)
      refuse_field(section.at(key), "is not a token and its id");
    return static_cast<std::int32_t>(pair[1].get<std::uint64_t>());
  };
  spec.before.insert(spec.before.begin(), token("cls"));
  spec.behind.push_back(token("sep"));
}

constexpr TokenizerStepRow kPostProcessors[] = {{"BertProcessing", read_cls_and_sep},
                                                {"ByteLevel", [](const TokenizerStep&, TokenizerSpec&) {}},
                                                {"RobertaProcessing", read_cls_and_sep},
                                                {"TemplateProcessing", read_template}};

void add_decoder(const TokenizerStep& step, TokenizerSpec& spec, DecoderStep made) {
  using Kind = DecoderStep::Kind;
  if (!spec.decoder.empty()) {
    const Kind last = spec.decoder.back().kind;
    if (last == Kind::strip_text || last == Kind::metaspace || last == Kind::word_piece ||
        (last == Kind::fuse && made.kind != Kind::strip_text))
      refuse_field(step.path, "stands behind a step that puts tokens together");
  }
  spec.decoder.push_back(std::move(made));
}

void read_decoder_replace(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section section(step.json, step.path, {"type", "pattern", "content"});
  auto [is_pattern, text] = read_pattern(section);
  if (is_pattern) refuse_field(section.at("pattern"), "is not a String");
  add_decoder(step, spec, {DecoderStep::Kind::replace, std::move(text), section.text("content")});
}

void read_decoder_strip(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section section(step.json, step.path, {"type", "content", "start", "stop"});
  const bool is_fused = !spec.decoder.empty() && spec.decoder.back().kind == DecoderStep::Kind::fuse;
  if (!is_fused) refuse_field(step.path, "does not stand behind Fuse");
  if (section.count("stop") != 0) refuse_field(section.at("stop"), "is not 0");
  if (section.text("content").empty()) refuse_field(section.at("content"), "is empty");
  add_decoder(step, spec, {DecoderStep::Kind::strip_text, section.text("content"), "", section.count("start")});
}

void read_decoder_metaspace(const TokenizerStep& step, TokenizerSpec& spec) {
  const Metaspace meta = metaspace_of(step);
  if (!spec.decoder.empty()) refuse_field(step.path, "stands behind another step");
  const auto kind = meta.scheme == "never" ? DecoderStep::Kind::replace : DecoderStep::Kind::metaspace;
  add_decoder(step, spec, {kind, meta.replacement, " "});
}

void read_decoder_word_piece(const TokenizerStep& step, TokenizerSpec& spec) {
  const Section section(step.json, step.path, {"type", "prefix", "cleanup"});
  if (!spec.decoder.empty()) refuse_field(step.path, "stands behind another step");
  add_decoder(step, spec,
              {.kind = DecoderStep::Kind::word_piece,
               .text = section.text("prefix"),
               .count = section.flag("cleanup", {}) ? 1U : 0U});
}

template <DecoderStep::Kind kKind>
void read_decoder(const TokenizerStep& step, TokenizerSpec& spec) {
  add_decoder(step, spec, {.kind = kKind});
}

constexpr TokenizerStepRow kDecoders[] = {{"ByteFallback", read_decoder<DecoderStep::Kind::byte_fallback>},
                                          {"ByteLevel", read_decoder<DecoderStep::Kind::byte_level>},
                                          {"Fuse", read_decoder<DecoderStep::Kind::fuse>},
                                          {"Metaspace", read_decoder_metaspace},
                                          {"Replace", read_decoder_replace},
                                          {"Strip", read_decoder_strip},
                                          {"WordPiece", read_decoder_word_piece}};

}  // namespace

std::pair<bool, std::string> read_pattern(const Section& section) {
  const Section pattern(section.get("pattern"), section.at("pattern"), {"Regex", "String"});
  const bool is_pattern = pattern.find("Regex") != nullptr;
  const std::string& text = pattern.text(is_pattern ? "Regex" : "String");
  if (text.empty()) refuse_field(pattern.at(is_pattern ? "Regex" : "String"), "is empty");
  return {is_pattern, text};
}

void read_steps(const Section& file, TokenizerSpec& spec) {
  read_each(file, "normalizer", "normalizers", normalizer_rows(), spec);
  read_each(file, "pre_tokenizer", "pretokenizers", kPreTokenizers, spec);
  read_each(file, "post_processor", "processors", kPostProcessors, spec);
  read_each(file, "decoder", "decoders", kDecoders, spec);
  const auto is_byte_level = [](const DecoderStep& step) { return step.kind == DecoderStep::Kind::byte_level; };
  const bool decodes_bytes = spec.decoder.size() == 1 && is_byte_level(spec.decoder[0]);
  if (spec.decoder.empty()) refuse_field("decoder", "is missing");
  if (spec.is_byte_level != decodes_bytes || (!decodes_bytes && std::ranges::any_of(spec.decoder, is_byte_level)))
    refuse_field("decoder", "is ByteLevel, and the pre-tokenizer is not, or the other way round");
}

}  // namespace ms::data
