#include "data/tokenizer_fields.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace ms::data {

void refuse_field(std::string_view field, std::string_view why) {
  throw user_error(
      "data.tokenizer", fmt::format("{}: {}", field, why),
      "ms-data(1) has a table of what is read; encode the text with the library that made the tokenizer, as "
      "Megatron's .bin and .idx, and train on that");
}

Section::Section(const Json& json, std::string path, std::initializer_list<std::string_view> keys, bool any_key)
    : json_(json), path_(std::move(path)) {
  if (!json.is_object()) refuse_field(path_.empty() ? "the file" : path_, "is not an object");
  if (any_key) return;
  for (const auto& [key, value] : json.items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) refuse_field(at(key), "is not known");
}

std::string Section::at(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

const Json* Section::find(std::string_view key) const {
  const Json* const value = json_.find(key);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

const Json& Section::get(std::string_view key) const {
  const Json* const value = find(key);
  if (value == nullptr) refuse_field(at(key), "is missing");
  return *value;
}

bool Section::flag(std::string_view key, std::optional<bool> otherwise) const {
  if (otherwise && find(key) == nullptr) return *otherwise;
  if (!get(key).is_boolean()) refuse_field(at(key), "is not true or false");
  return get(key).get<bool>();
}

const std::string& Section::text(std::string_view key) const {
  if (!get(key).is_string()) refuse_field(at(key), "is not a string");
  return get(key).text();
}

std::size_t Section::count(std::string_view key) const {
  const Json& value = get(key);
  if (!value.is_number_unsigned()) refuse_field(at(key), "is not a count");
  return value.get<std::uint64_t>();
}

}  // namespace ms::data
