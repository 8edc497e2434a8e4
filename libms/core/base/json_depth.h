// How deep a JSON text nests, told before it is parsed: the JSON library builds, and prints, values of any depth, and
// prints them by recursion, so that a text of brackets alone would end the process. Readers of files that others wrote
// ask here first. Texts that are no JSON get an answer too: it holds up to where a parser gives up on them.
#pragma once

#include <cstddef>
#include <string_view>

namespace ms {

// Whether lists and objects stand in each other more than `most` deep.
inline bool json_deeper_than(std::string_view text, std::size_t most) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > most) return true;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return false;
}

}  // namespace ms
