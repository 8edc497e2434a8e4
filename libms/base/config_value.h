// Values of a TOML document as configurations read them.
#pragma once

#include <string>
#include <toml.hpp>

namespace ms {

// The value in words, for messages: "the integer 3", "a table".
std::string describe(const toml::value& value);

// An item of a list: its text, or what is wrong with it.
struct ListItem {
  std::string text;
  std::string problem = {};
};

// A string; with `weighted_paths` also {path = "P", weight = 3}, which is "3 P", and {path = "P", weight = [[0, 0.9],
// [100, 0.1]]}, which is "0:0.9;100:0.1 P"; the weight may be left out. Whether the numbers make sense is for the
// list's reader.
ListItem list_item(const toml::value& value, bool weighted_paths);

}  // namespace ms
