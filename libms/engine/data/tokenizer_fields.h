// The fields of a tokenizer.json, each with its path, which errors name.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace ms::data {

// Throws Error("data.tokenizer", user).
[[noreturn]] void refuse_field(std::string_view field, std::string_view why);

// An object of the file, and the path of keys that leads to it. Keys other than `keys` are refused.
class Section {
 public:
  Section(const Json& json, std::string path, std::initializer_list<std::string_view> keys, bool any_key = false);

  std::string at(std::string_view key) const;
  const Json* find(std::string_view key) const;  // nullptr: missing, or null
  const Json& get(std::string_view key) const;
  bool flag(std::string_view key, std::optional<bool> otherwise) const;
  const std::string& text(std::string_view key) const;
  std::size_t count(std::string_view key) const;

 private:
  const Json& json_;
  std::string path_;
};

}  // namespace ms::data
