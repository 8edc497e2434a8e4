#include "base/config_value.h"

#include <fmt/format.h>

#include <limits>
#include <optional>

namespace ms {
namespace {

std::optional<std::string> number_text(const toml::value& value) {
  if (value.is_integer()) return fmt::format("{}", static_cast<double>(value.as_integer()));
  if (value.is_floating()) return fmt::format("{}", value.as_floating());
  return std::nullopt;
}

// "0:0.9;100:0.1" of [[0, 0.9], [100, 0.1]].
ListItem schedule_text(const toml::array& pieces) {
  if (pieces.empty()) return {{}, "weight is an empty list"};
  std::string text;
  for (const toml::value& piece : pieces) {
    const bool pair = piece.is_array() && piece.as_array().size() == 2;
    const std::optional<std::string> weight = pair ? number_text(piece.as_array()[1]) : std::nullopt;
    if (!weight || !piece.as_array()[0].is_integer()) return {{}, "weight is not a list of [STEP, WEIGHT] pairs"};
    const std::int64_t step = piece.as_array()[0].as_integer();
    // As for every integer: toml11 clamps, and says nothing.
    if (step == std::numeric_limits<std::int64_t>::max()) return {{}, "a step of its weight is too large"};
    text += fmt::format("{}{}:{}", text.empty() ? "" : ";", step, *weight);
  }
  return {text};
}

ListItem weighted_path(const toml::table& table) {
  for (const auto& [key, value] : table) {
    if (key != "path" && key != "weight") return {{}, fmt::format("unknown key '{}', expected path and weight", key)};
  }
  const auto path = table.find("path"), weight = table.find("weight");
  if (path == table.end()) return {{}, "path is missing"};
  if (!path->second.is_string()) return {{}, fmt::format("path must be a string, got {}", describe(path->second))};
  if (weight == table.end()) return {toml::get<std::string>(path->second)};
  ListItem item;
  if (weight->second.is_array()) {
    item = schedule_text(weight->second.as_array());
  } else if (const std::optional<std::string> number = number_text(weight->second)) {
    item.text = *number;
  } else {
    item.problem = fmt::format("weight must be a number or [[STEP, WEIGHT], ...], got {}", describe(weight->second));
  }
  item.text += " " + toml::get<std::string>(path->second);
  return item;
}

#if TOML11_VERSION_MAJOR >= 4
TomlPlace place_of_source(const toml::source_location& at) {
  return {at.first_line_number(), at.first_column_number()};
}
#else
TomlPlace place_of_source(const toml::source_location& at) { return {at.line(), at.column()}; }
#endif

}  // namespace

TomlPlace place_of(const toml::value& value) { return place_of_source(value.location()); }

TomlPlace place_of(const toml::exception& error) {
#if TOML11_VERSION_MAJOR >= 4
  const auto* syntax = dynamic_cast<const toml::syntax_error*>(&error);
  if (syntax == nullptr || syntax->errors().empty() || syntax->errors().front().locations().empty()) return {};
  return place_of_source(syntax->errors().front().locations().front().first);
#else
  return place_of_source(error.location());
#endif
}

std::string describe(const toml::value& value) {
  switch (value.type()) {
    case toml::value_t::boolean: return value.as_boolean() ? "the boolean true" : "the boolean false";
    case toml::value_t::integer: return fmt::format("the integer {}", value.as_integer());
    case toml::value_t::floating: return fmt::format("the number {}", value.as_floating());
    case toml::value_t::string: return fmt::format("the string \"{}\"", toml::get<std::string>(value));
    case toml::value_t::array: return "an array";
    case toml::value_t::table: return "a table";
    default: return "a date or time";
  }
}

ListItem list_item(const toml::value& value, bool weighted_paths) {
  if (value.is_string()) return {toml::get<std::string>(value)};
  if (weighted_paths && value.is_table()) return weighted_path(value.as_table());
  return {{},
          fmt::format("expected a string{}, got {}", weighted_paths ? " or {path = ..., weight = ...}" : "",
                      describe(value))};
}

}  // namespace ms
