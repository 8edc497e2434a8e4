// Files of JSON objects, one on each line or in one array: what they are known by, and the text in an object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ms::data {

enum class JsonForm : std::uint8_t { none, lines, array };

// The form of JSON that a file holds, by its first character, [ or {, or its name (.jsonl, .ndjson, also compressed).
// Whether it is sound is not looked at.
JsonForm json_form(std::string_view head, std::string_view path);

inline constexpr std::string_view kUtf8Bom = "\xef\xbb\xbf";

struct JsonLineProblem {
  std::string what;
  std::string hint = {};
  std::optional<std::size_t> column = {};  // from 1, in bytes
};

// Takes the text out of lines, one at a time.
class JsonLine {
 public:
  static constexpr std::size_t kPadding = 64;  // bytes behind a line that may be read

  // Paths of members, "text" or "meta.body", of which there is at least one. Error("data.field", user): one is empty.
  explicit JsonLine(const std::vector<std::string>& fields);
  ~JsonLine();
  JsonLine(JsonLine&&) noexcept;

  // Replaces `text` by the members' texts, with a newline between two: those that are null or empty are left out. An
  // escaped surrogate without its other half becomes U+FFFD. nullopt: the line is sound, all of it, and has all
  // members.
  std::optional<JsonLineProblem> read(std::string_view line, std::string& text);

 private:
  class Reader;
  std::unique_ptr<Reader> reader_;
};

}  // namespace ms::data
