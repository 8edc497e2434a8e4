#include "data/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "data/byte_alphabet.h"

namespace ms::data {
namespace {

constexpr std::size_t kMaxTokens = std::size_t{1} << 22U;
constexpr std::size_t kMaxJsonDepth = 16;
constexpr std::size_t kMaxSteps = 16;  // of a Sequence, those of sequences in it counted

[[noreturn]] void refuse_field(std::string_view field, std::string_view why) {
  throw user_error(
      "data.tokenizer", fmt::format("{}: {}", field, why),
      "byte-level BPE is read, as GPT-2, Llama 3 and Qwen have it, and nothing that would give other tokens "
      "than Hugging Face's tokenizers");
}

// An object of the file, and the path of keys that leads to it.
class Section {
 public:
  Section(const Json& json, std::string path, std::initializer_list<std::string_view> keys)
      : json_(json), path_(std::move(path)) {
    if (!json.is_object()) refuse_field(path_.empty() ? "the file" : path_, "is not an object");
    for (const auto& [key, value] : json.items())
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) refuse_field(at(key), "is not known");
  }

  std::string at(std::string_view key) const {
    return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  }
  // nullptr: missing, or null.
  const Json* find(std::string_view key) const {
    const Json* const value = json_.find(key);
    return value != nullptr && !value->is_null() ? value : nullptr;
  }
  const Json& get(std::string_view key) const {
    const Json* const value = find(key);
    if (value == nullptr) refuse_field(at(key), "is missing");
    return *value;
  }
  bool flag(std::string_view key, std::optional<bool> otherwise) const {
    if (otherwise && find(key) == nullptr) return *otherwise;
    if (!get(key).is_boolean()) refuse_field(at(key), "is not true or false");
    return get(key).get<bool>();
  }
  const std::string& text(std::string_view key) const {
    if (!get(key).is_string()) refuse_field(at(key), "is not a string");
    return get(key).text();
  }
  void must_be_null(std::string_view key, std::string_view why) const {
    if (find(key) != nullptr) refuse_field(at(key), why);
  }

 private:
  const Json& json_;
  std::string path_;
};

// The steps of a normalizer, pre-tokenizer, post-processor or decoder: those in sequences of it, whose members stand
// under `members`, or itself.
struct Step {
  const Json& json;
  std::string path, type;
};
void add_steps(const Json& json, const std::string& path, std::string_view members, std::vector<Step>& steps) {
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

std::vector<Step> steps_of(const Section& file, std::string_view key, std::string_view members) {
  std::vector<Step> steps;
  if (const Json* const json = file.find(key)) add_steps(*json, std::string(key), members, steps);
  return steps;
}

[[noreturn]] void refuse_type(const Step& step, std::string_view known) {
  refuse_field(step.path + ".type", fmt::format("is '{}'; known are {}", step.type, known));
}

void read_normalizer(const Section& file, TokenizerSpec& spec) {
  for (const Step& step : steps_of(file, "normalizer", "normalizers")) {
    if (step.type != "NFC") refuse_type(step, "NFC and Sequence");
    const Section checked(step.json, step.path, {"type"});
    spec.nfc = true;
  }
}

void read_pre_tokenizer(const Section& file, TokenizerSpec& spec) {
  bool has_byte_level = false;
  for (const Step& step : steps_of(file, "pre_tokenizer", "pretokenizers")) {
    if (has_byte_level) refuse_field(step.path, "stands behind ByteLevel");
    if (step.type == "ByteLevel") {
      const Section level(step.json, step.path, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
      spec.add_prefix_space = level.flag("add_prefix_space", {});
      spec.gpt2_pattern = level.flag("use_regex", true);
      has_byte_level = true;
    } else if (step.type == "Split") {
      const Section split(step.json, step.path, {"type", "pattern", "behavior", "invert"});
      if (split.text("behavior") != "Isolated") refuse_field(split.at("behavior"), "is not 'Isolated'");
      if (split.flag("invert", false)) refuse_field(split.at("invert"), "is true");
      const Section pattern(split.get("pattern"), split.at("pattern"), {"Regex"});
      spec.patterns.push_back(pattern.text("Regex"));
    } else {
      refuse_type(step, "Split, ByteLevel and Sequence");
    }
  }
  if (!has_byte_level) refuse_field("pre_tokenizer", "has no ByteLevel");
}

// Neither says anything of the tokens of a text for pretraining, to which no special tokens are added.
void check_surroundings(const Section& file) {
  for (const Step& step : steps_of(file, "post_processor", "processors"))
    if (step.type != "ByteLevel" && step.type != "TemplateProcessing")
      refuse_type(step, "ByteLevel, TemplateProcessing and Sequence");
  const std::vector<Step> decoders = steps_of(file, "decoder", "decoders");
  if (decoders.size() != 1) refuse_field("decoder", "is not one ByteLevel");
  if (decoders[0].type != "ByteLevel") refuse_type(decoders[0], "ByteLevel");
  file.must_be_null("truncation", "is set; documents are not truncated");
  file.must_be_null("padding", "is set; documents are not padded");
}

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
  for (int byte = 0; byte < 256; ++byte)
    if (!ids.contains(to_alphabet(std::string(1, static_cast<char>(byte)))))
      refuse_field("model.vocab", fmt::format("has no token for the byte 0x{:02x}", byte));
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

// Called before all else: of another kind of model everything is different, and its name says most.
void check_model_type(const Section& file) {
  const Json& model = file.get("model");
  const Json* const type = model.is_object() ? model.find("type") : nullptr;
  // Files of the first releases have no type.
  if (type != nullptr && type->is_string() && type->text() != "BPE")
    refuse_field("model.type", fmt::format("is '{}', not 'BPE'", type->text()));
  const Json* const fallback = model.is_object() ? model.find("byte_fallback") : nullptr;
  if (fallback != nullptr && fallback->is_boolean() && fallback->get<bool>())
    refuse_field("model.byte_fallback", "is true, as in a SentencePiece model (Llama 2)");
}

Ids read_model(const Section& file, TokenizerSpec& spec) {
  const Section model(file.get("model"), "model",
                      {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                       "byte_fallback", "ignore_merges", "vocab", "merges"});
  // unk_token and fuse_unk say nothing where every byte has a token.
  if (model.find("type") != nullptr) model.text("type");
  model.must_be_null("dropout", "is set");
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (model.find(key) != nullptr && !model.text(key).empty()) refuse_field(model.at(key), "is set");
  model.flag("byte_fallback", false);
  spec.ignore_merges = model.flag("ignore_merges", false);
  const Ids ids = read_vocab(model, spec);
  read_merges(model, ids, spec);
  return ids;
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
  check_model_type(file);
  check_surroundings(file);
  read_normalizer(file, spec);
  read_pre_tokenizer(file, spec);
  const Ids ids = read_model(file, spec);
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
  for (const std::string& pattern : spec.patterns)
    steps.push_back(
        {{"type", "Split"}, {"pattern", Json{{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  const auto byte_level = [](bool add_prefix_space, bool use_regex) {
    return Json{{"type", "ByteLevel"},
                {"add_prefix_space", add_prefix_space},
                {"trim_offsets", true},
                {"use_regex", use_regex}};
  };
  steps.push_back(byte_level(spec.add_prefix_space, spec.gpt2_pattern));
  Json file{{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"added_tokens", std::move(added)}};
  file["normalizer"] = spec.nfc ? Json{{"type", "NFC"}} : Json();
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
