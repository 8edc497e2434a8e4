// Says in a user's words why a text is not TOML, and keeps from the parser what it cannot bear. The parser's own words
// are about its grammar.
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

// The parser recurses as deep as values nest, takes the square of the lines, and of the bytes of a line, to say where
// values are, and reads past what is not UTF-8.
struct TomlBounds {
  std::size_t bytes = std::size_t{256} << 10U;
  std::size_t lines = 8192;
  std::size_t line_bytes = std::size_t{32} << 10U;
  std::size_t nesting = 64;  // of arrays, tables and dotted keys together; quoted text counts as if it were not quoted
};

// Returns why the parser must not see the text: it is not UTF-8, or beyond the bounds. nullopt: it may.
std::optional<SyntaxProblem> unfit_for_toml(std::string_view text, const TomlBounds& bounds = {});

}  // namespace ms
