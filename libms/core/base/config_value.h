// Values of a TOML document as configurations read them.
#pragma once

#include <cstddef>
#include <string>
#include <toml.hpp>

namespace ms {

// The line and the column, from 1, where a value begins, or where reading failed. toml11 3 and 4, those of Debian 12
// and 13, have different names for it.
struct TomlPlace {
  std::size_t line = 1;
  std::size_t column = 1;
};
TomlPlace place_of(const toml::value& value);
TomlPlace place_of(const toml::exception& error);

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
