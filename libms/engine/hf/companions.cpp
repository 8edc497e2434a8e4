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

}  // namespace

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
  const std::optional<std::string> path = file_in(dir, "config.json");
  if (!path) return found;
  std::string refusal;
  const std::optional<Json> config = Json::try_parse(read_text(*path), {.max_depth = kMaxDepth}, &refusal);
  if (!config) throw user_error("hf.config", fmt::format("'{}' {}", *path, refusal));
  for (const char* key : kTokens) {
    if (const Json* value = config->find(key)) found[key] = *value;
  }
  return found;
}

}  // namespace ms::hf
