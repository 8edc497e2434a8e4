// Suggestions for the name of a section, a key or a choice that does not exist: a near name, or the one that another
// program calls so. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ms {

struct KnownKey {
  std::string section, key;
};

// Returns the known key that others call so (base/other_names.h), also in a section that they call so; '-' counts as
// '_'. Else the nearest key of the same section; else the same key in the nearest other section; else any near name.
std::optional<std::string> meant_key(std::string_view name, std::span<const KnownKey> known);
std::optional<std::string> meant_section(std::string_view name, std::span<const std::string> sections);
std::optional<std::string> meant_choice(std::string_view word, std::span<const std::string> choices);

}  // namespace ms
