#include "data/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "data/tokenizer_fields.h"
#include "data/tokenizer_steps.h"

namespace ms::data {
namespace {

constexpr std::size_t kMaxTokens = std::size_t{1} << 22U;
constexpr std::size_t kMaxJsonDepth = 16;

using Ids = std::unordered_map<std::string_view, std::int32_t>;

Ids read_vocab(const Section& model, TokenizerSpec& spec) {
  const Json& json = model.get("vocab");
  if (!json.is_object()) refuse_field("model.vocab", "is not an object");
  if (json.size() > kMaxTokens) refuse_field("model.vocab", fmt::format("has more than {} tokens", kMaxTokens));
  spec.vocab.resize(json.size());
  std::vector<bool> taken(json.size());
  for (const auto& [token, id] : json.items()) {
    const bool is_id = id.is_number_unsigned();
    const std::uint64_t number = is_id ? id.get<std::uint64_t>() : 0;
    if (!is_id || number >= json.size() || taken[number] || token.empty())
      refuse_field("model.vocab", fmt::format("the id of '{}' is {}; each of 0 to {} must be there once", token,
                                              id.dump(), static_cast<std::int64_t>(json.size()) - 1));
    taken[number] = true;
    spec.vocab[number] = token;
  }
  Ids ids;
  ids.reserve(spec.vocab.size());
  for (std::size_t id = 0; id < spec.vocab.size(); ++id) ids.emplace(spec.vocab[id], static_cast<std::int32_t>(id));
  return ids;
}

// "a b", or ["a", "b"].
std::pair<std::string_view, std::string_view> merge_pair(const Json& merge, const std::string& path) {
  if (merge.is_string()) {
    const std::string_view text = merge.text();
    const std::size_t blank = text.find(' ');
    if (blank == std::string_view::npos || text.find(' ', blank + 1) != std::string_view::npos)
      refuse_field(path, fmt::format("'{}' is not two tokens with a blank between them", text));
    return {text.substr(0, blank), text.substr(blank + 1)};
  }
  if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string())
    refuse_field(path, "is neither a string nor a pair of strings");
  return {merge[0].text(), merge[1].text()};
}

std::int32_t unknown_of(const Section& model, const Ids& ids) {
  const auto unknown = ids.find(model.text("unk_token"));
  if (unknown == ids.end()) refuse_field("model.unk_token", "is not in the vocabulary");
  return unknown->second;
}

void read_merges(const Section& model, const Ids& ids, TokenizerSpec& spec) {
  const Json& json = model.get("merges");
  if (!json.is_array()) refuse_field("model.merges", "is not a list");
  if (json.size() > kMaxTokens) refuse_field("model.merges", fmt::format("has more than {} merges", kMaxTokens));
  std::string merged;
  for (const Json& merge : json) {
    if (merge.is_string() && merge.text().starts_with("#version")) continue;  // a line of GPT-2's merges.txt
    const std::string path = fmt::format("model.merges[{}]", spec.merges.size());
    const auto [left, right] = merge_pair(merge, path);
    const auto id_of = [&](std::string_view token) {
      const auto found = ids.find(token);
      if (found == ids.end()) refuse_field(path, fmt::format("'{}' is not in the vocabulary", token));
      return found->second;
    };
    merged.assign(left).append(right);
    spec.merges.push_back({id_of(left), id_of(right), id_of(merged)});
  }
}

// The score as tokenizers reads it: that divides the digits by a power of ten, which may round twice.
double score_of(const Json& json, const std::string& path) {
  if (!json.is_number()) refuse_field(path, "is not a token and its score");
  const double exact = json.get<double>();
  std::array<char, 32> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), std::abs(exact), std::chars_format::scientific);
  std::uint64_t digits = 0;
  int exponent = 0, num_decimals = 0;
  bool is_behind_point = false;
  const char* at = text.data();
  for (; at != end.ptr && *at != 'e'; ++at) {
    if (*at == '.') {
      is_behind_point = true;
      continue;
    }
    digits = 10 * digits + static_cast<std::uint64_t>(*at - '0');
    num_decimals += is_behind_point ? 1 : 0;
  }
  std::from_chars(at + (at[1] == '+' ? 2 : 1), end.ptr, exponent);
  exponent -= num_decimals;
  const double power = std::pow(10.0, std::abs(exponent)), whole = static_cast<double>(digits);
  return std::copysign(exponent < 0 ? whole / power : whole * power, exact);
}

// [["<unk>", 0.0], ["a", -2.5]]
Ids read_scores(const Section& model, TokenizerSpec& spec) {
  const Json& json = model.get("vocab");
  if (!json.is_array()) refuse_field("model.vocab", "is not a list");
  if (json.size() > kMaxTokens) refuse_field("model.vocab", fmt::format("has more than {} tokens", kMaxTokens));
  Ids ids;
  spec.vocab.reserve(json.size());  // `ids` looks into it
  for (const Json& row : json) {
    const std::string path = fmt::format("model.vocab[{}]", spec.vocab.size());
    if (!row.is_array() || row.size() != 2 || !row[0].is_string()) refuse_field(path, "is not a token and its score");
    ids.insert_or_assign(spec.vocab.emplace_back(row[0].text()), static_cast<std::int32_t>(spec.scores.size()));
    spec.scores.push_back(score_of(row[1], path));
  }
  return ids;
}

Ids read_bpe(const Section& file, TokenizerSpec& spec) {
  const Section model(file.get("model"), "model",
                      {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                       "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (const Json* const dropout = model.find("dropout");
      dropout != nullptr && !(dropout->is_number() && dropout->get<double>() == 0))
    refuse_field("model.dropout", "is not 0");
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (model.find(key) != nullptr && !model.text(key).empty()) refuse_field(model.at(key), "is set");
  spec.byte_fallback = model.flag("byte_fallback", false);
  spec.fuse_unknown = model.flag("fuse_unk", false);
  spec.ignore_merges = model.flag("ignore_merges", false);
  const Ids ids = read_vocab(model, spec);
  read_merges(model, ids, spec);
  if (model.find("unk_token") != nullptr) spec.unknown = unknown_of(model, ids);
  return ids;
}

Ids read_unigram(const Section& file, TokenizerSpec& spec) {
  const Section model(file.get("model"), "model", {"type", "unk_id", "vocab", "byte_fallback"});
  spec.byte_fallback = model.flag("byte_fallback", false);
  const Ids ids = read_scores(model, spec);
  if (model.count("unk_id") >= spec.vocab.size()) refuse_field("model.unk_id", "is not in the vocabulary");
  spec.unknown = static_cast<std::int32_t>(model.count("unk_id"));
  return ids;
}

Ids read_word_piece(const Section& file, TokenizerSpec& spec) {
  const Section model(file.get("model"), "model",
                      {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  spec.part_prefix = model.text("continuing_subword_prefix");
  spec.max_word_characters = model.count("max_input_chars_per_word");
  const Ids ids = read_vocab(model, spec);
  spec.unknown = unknown_of(model, ids);
  return ids;
}

struct ModelRow {
  std::string_view type;
  TokenizerSpec::Model model;
  Ids (*read)(const Section& file, TokenizerSpec& spec);
};
constexpr ModelRow kModels[] = {{"BPE", TokenizerSpec::Model::bpe, read_bpe},
                                {"Unigram", TokenizerSpec::Model::unigram, read_unigram},
                                {"WordPiece", TokenizerSpec::Model::word_piece, read_word_piece}};

// Called before all else: with another kind of model everything is different, and its name says most.
const ModelRow& model_row(const Section& file) {
  const Json& model = file.get("model");
  const Json* const type = model.is_object() ? model.find("type") : nullptr;
  if (type == nullptr) return kModels[0];  // files of the first releases have none
  const std::string name = type->is_string() ? type->text() : type->dump();
  const auto* const row = std::ranges::find(kModels, name, &ModelRow::type);
  if (row == std::end(kModels)) refuse_field("model.type", fmt::format("is '{}', not BPE, Unigram or WordPiece", name));
  return *row;
}

void read_added(const Section& file, const Ids& ids, TokenizerSpec& spec) {
  const Json* const list = file.find("added_tokens");
  if (list == nullptr) return;
  if (!list->is_array()) refuse_field("added_tokens", "is not a list");
  if (list->size() > kMaxTokens) refuse_field("added_tokens", fmt::format("has more than {} tokens", kMaxTokens));
  std::unordered_map<std::string_view, bool> seen;
  std::int64_t next_id = static_cast<std::int64_t>(spec.vocab.size());
  spec.added.reserve(list->size());
  for (const Json& json : *list) {
    const Section token(json, fmt::format("added_tokens[{}]", spec.added.size()),
                        {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    const std::string& content = token.text("content");
    if (content.empty()) refuse_field(token.at("content"), "is empty");
    if (!seen.emplace(content, true).second)
      refuse_field(token.at("content"), fmt::format("'{}' is there twice", content));
    // tokenizers gives ids itself, whatever the file says: that of the vocabulary, or the next one.
    const auto known = ids.find(content);
    const std::int64_t id = known != ids.end() ? known->second : next_id++;
    if (!token.get("id").is_number_integer() || !(token.get("id") == Json(id)))
      refuse_field(token.at("id"),
                   fmt::format("of '{}' is {}, and tokenizers would make it {}", content, token.get("id").dump(), id));
    spec.added.push_back({.content = content,
                          .id = static_cast<std::int32_t>(id),
                          .special = token.flag("special", {}),
                          .single_word = token.flag("single_word", {}),
                          .lstrip = token.flag("lstrip", {}),
                          .rstrip = token.flag("rstrip", {}),
                          .normalized = token.flag("normalized", {})});
  }
}

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view text) {
  std::string duplicate;
  const JsonOptions options{.max_depth = kMaxJsonDepth,
                            .on_duplicate = [&](std::size_t, const std::string& key) { duplicate = key; }};
  std::string problem;
  const std::optional<Json> json = Json::try_parse(text, options, &problem);
  if (!json) throw user_error("data.tokenizer", problem);
  if (!duplicate.empty()) throw user_error("data.tokenizer", fmt::format("the key '{}' is there twice", duplicate));
  const Section file(*json, "",
                     {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                      "post_processor", "decoder", "model"});
  if (file.text("version") != "1.0") refuse_field("version", fmt::format("is '{}', not '1.0'", file.text("version")));
  TokenizerSpec spec;
  const ModelRow& model = model_row(file);
  spec.model = model.model;
  read_steps(file, spec);
  if (spec.is_byte_level && spec.model != TokenizerSpec::Model::bpe)
    refuse_field("pre_tokenizer", "is ByteLevel, and the model is not BPE");
  const Ids ids = model.read(file, spec);
  read_added(file, ids, spec);
  return spec;
}

std::string tokenizer_json(const TokenizerSpec& spec) {
  Json added = Json::array(), steps = Json::array();
  for (const AddedToken& token : spec.added)
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", token.single_word},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  std::span<const SplitStep> splits = spec.splits;
  const bool is_gpt2 = !splits.empty() && splits.back().text == kGpt2Pattern;
  if (is_gpt2) splits = splits.first(splits.size() - 1);
  for (const SplitStep& split : splits)
    steps.push_back(
        {{"type", "Split"}, {"pattern", Json{{"Regex", split.text}}}, {"behavior", "Isolated"}, {"invert", false}});
  const auto byte_level = [](bool add_prefix_space, bool use_regex) {
    return Json{{"type", "ByteLevel"},
                {"add_prefix_space", add_prefix_space},
                {"trim_offsets", true},
                {"use_regex", use_regex}};
  };
  steps.push_back(byte_level(false, is_gpt2));
  Json file{{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"added_tokens", std::move(added)}};
  file["normalizer"] = !spec.normalizer.empty() ? Json{{"type", "NFC"}} : Json();
  file["pre_tokenizer"] = Json{{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
  file["post_processor"] = nullptr;
  file["decoder"] = byte_level(true, true);
  std::string text = file.dump(2);
  text.resize(text.rfind("\n}"));
  // Json looks through the keys that it has for each one that is added: the vocabulary is written here.
  text += fmt::format(
      ",\n  \"model\": {{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
      "    \"byte_fallback\": false,\n    \"ignore_merges\": {},\n    \"vocab\": {{",
      spec.ignore_merges);
  for (std::size_t id = 0; id < spec.vocab.size(); ++id)
    text += fmt::format("{}\n      {}: {}", id == 0 ? "" : ",", Json(spec.vocab[id]).dump(), id);
  text += "\n    },\n    \"merges\": [";
  const auto token_text = [&](std::int32_t id) { return Json(spec.vocab[static_cast<std::size_t>(id)]).dump(); };
  for (const BpeMerge& merge : spec.merges)
    text += fmt::format("{}\n      [{}, {}]", &merge == spec.merges.data() ? "" : ",", token_text(merge.left),
                        token_text(merge.right));
  return text + "\n    ]\n  }\n}\n";
}

}  // namespace ms::data
