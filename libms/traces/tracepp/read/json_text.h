// JSON as it streams by: a window of text that moves over a file of any size, cut where values end. It knows strings
// and brackets, and leaves what values mean to a parser. json_objects.h and the readers of top-level objects use it.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tracepp/read/text_input.h"

namespace ms::tracepp {

// Larger values, and objects in an array, end the text: no trace needs them, and they would stand in memory whole.
inline constexpr std::size_t kMaxValueBytes = std::size_t{64} << 20;

// Whether the text begins with an object, or an array of objects.
bool begins_json(std::string_view text);

class JsonText {
 public:
  static constexpr std::size_t kPadding = 128;  // bytes behind everything handed out that may be read

  explicit JsonText(TextInput& input);

  // The next byte that is no white space, still to be taken; '\0' at the end of the text.
  char peek();
  void take() { ++at_; }

  // The value that begins here, whole, and takes it. nullopt: the text ends inside it. Valid until the next call.
  std::optional<std::string_view> value();
  // For objects: a key with its quotes and the colon behind it; nullopt where that is not what comes.
  std::optional<std::string_view> key();

  // A piece of an array: whole values from here on with the commas between them, about as much as `goal_bytes`; it is
  // still to be taken. It may be written to, and so may one byte before and one behind. Unless `exact` its end is a
  // guess by what the text looks like, and may lie inside a value. Empty where the text ends inside the next value.
  std::span<char> piece(std::size_t goal_bytes, bool exact);
  void take(std::size_t bytes) { at_ += bytes; }

  // Whether the text was left before its end because a value was too large.
  bool gave_up() const { return gave_up_; }

 private:
  bool fill(std::size_t bytes);  // makes so many bytes from at_ on available, if there are; whether any came
  std::size_t value_end(std::size_t from) const;  // npos: not in the window

  TextInput& input_;
  std::vector<char> buffer_;
  std::size_t at_ = 1, end_ = 1;  // there is always a byte before at_
  bool ended_ = false, gave_up_ = false;
};

}  // namespace ms::tracepp
