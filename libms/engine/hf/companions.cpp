#include "hf/companions.h"

#include <filesystem>
#include <optional>

#include "base/file.h"
#include "hf/json_value.h"

namespace ms::hf {
namespace {

namespace fs = std::filesystem;

// config.json is not copied out again: the exporter writes its own, with the tokens of this one.
constexpr const char* kCompanions[] = {"config.json",
                                       "generation_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "tokenizer.model",
                                       "vocab.json",
                                       "merges.txt",
                                       "chat_template.jinja",
                                       "chat_template.json"};
constexpr const char* kTokens[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

// Hubs keep links to files, which it follows.
std::optional<std::string> file_in(const std::string& dir, const char* name) {
  std::error_code ignored;
  const fs::path path = fs::path(dir) / name;
  if (dir.empty() || !fs::is_regular_file(path, ignored)) return std::nullopt;
  return path.string();
}

// The object in a file of `dir`; an empty one where there is no such file.
Json object_in(const std::string& dir, const char* name) {
  const std::optional<std::string> path = file_in(dir, name);
  if (!path) return Json::object();
  std::string refusal;
  std::optional<Json> object = Json::try_parse(read_text(*path), {.max_depth = kMaxDepth}, &refusal);
  if (!object) throw user_error("hf.config", fmt::format("'{}' {}", *path, refusal));
  return object->is_object() ? *std::move(object) : Json::object();
}

}  // namespace

std::optional<std::string> tokenizer_in(const std::string& dir) { return file_in(dir, kTokenizerFile.data()); }

std::vector<std::int32_t> end_tokens(const std::string& dir) {
  std::vector<std::int32_t> ids;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const Json object = object_in(dir, name);
    const Json* value = object.find("eos_token_id");
    if (value == nullptr) continue;
    Json all = Json::array();
    if (value->is_array())
      all = *value;
    else
      all.push_back(*value);
    for (const Json& id : all) {
      if (id.is_number_unsigned() && id.get<std::uint64_t>() <= INT32_MAX) ids.push_back(id.get<std::int32_t>());
    }
    if (!ids.empty()) break;
  }
  return ids;
}

std::map<std::int32_t, std::string> added_tokens(std::string_view text) {
  std::map<std::int32_t, std::string> tokens;
  const std::optional<Json> file = Json::try_parse(text, {.max_depth = kMaxDepth});
  const Json* added = file ? file->find("added_tokens") : nullptr;
  if (added == nullptr || !added->is_array()) return tokens;
  for (const Json& token : *added) {
    const Json *id = token.find("id"), *content = token.find("content");
    if (id != nullptr && id->is_number_unsigned() && content != nullptr && content->is_string())
      tokens[id->get<std::int32_t>()] = content->get<std::string>();
  }
  return tokens;
}

std::string companions_beside(const std::string& checkpoint) {
  fs::path path = fs::path(checkpoint).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return (path.parent_path() / "hf").string();
}

void copy_companions(const std::string& from, const std::string& to) {
  for (const char* name : kCompanions) {
    const std::optional<std::string> path = file_in(from, name);
    if (!path) continue;
    make_directories(to);
    write_file_atomic((fs::path(to) / name).string(), read_text(*path));
  }
}

Json token_ids(const std::string& dir) {
  Json found = Json::object();
  const Json config = object_in(dir, "config.json");
  for (const char* key : kTokens) {
    if (const Json* value = config.find(key)) found[key] = *value;
  }
  return found;
}

}  // namespace ms::hf
