// Files of JSON Lines, which hold a JSON object on each line: they are no text to train on.
#pragma once

#include <string_view>

namespace ms::data {

// Whether a file that begins with `head` holds JSON Lines: two lines of objects, or one where its name says so.
bool looks_like_json_lines(std::string_view head, std::string_view path);

}  // namespace ms::data
