// The syntax of nhc.conf, as far as it is not the shell's. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ms::health {

using Words = std::vector<std::string>;

bool is_digits(std::string_view text);  // digits

// The lines with their numbers, without blank ones and comments, as the shell's `read` has them: a backslash joins
// lines, and stands for the character that follows.
std::vector<std::pair<std::size_t, std::string>> nhc_lines(std::string_view text);

// Does the line with this target run on the node? "!" negates what follows: /regular expression/, {node range,...}, or
// a glob. nullopt: it is another form, which only NHC can tell.
std::optional<bool> matches_node(std::string target, const std::string& node);

// Splits a simple command into its words. nullopt: it is more than that, which only a shell can tell.
std::optional<Words> shell_words(std::string_view command);

// The options of a check, as getopts reads them.
struct NhcOptions {
  std::map<char, std::string> given;  // the last value of each
  Words rest;
  bool has(std::string_view any) const {
    return std::ranges::any_of(any, [&](char c) { return given.contains(c); });
  }
};
// nullopt: one is not among `flags` and `with_value`, or lacks its value.
std::optional<NhcOptions> nhc_options_of(const Words& words, std::string_view flags, std::string_view with_value);

}  // namespace ms::health
