// Says in a user's words why a text is not TOML. The parser's own words are about its grammar.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ms {

struct SyntaxProblem {
  std::size_t line = 1, column = 1;
  std::string message;  // "'{' is not closed"
  bool operator==(const SyntaxProblem&) const = default;
};

// Returns the first mistake of a common kind: a string or bracket that is not closed, a bracket that closes nothing, a
// line without '=', a value that is missing or lacks quotes. nullopt: none of these.
std::optional<SyntaxProblem> common_toml_mistake(std::string_view text);

// Returns an upper bound of how deep arrays, tables and dotted keys go: quoted text counts as if it were not quoted.
int toml_nesting(std::string_view text);

}  // namespace ms
