#include "health/commands/nhc_syntax.h"

#include <fnmatch.h>
#include <regex.h>

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace ms::health {
namespace {

constexpr std::string_view kBlanks = " \t\r";

bool has_char(std::string_view text, char c) { return text.find(c) != std::string_view::npos; }

}  // namespace

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::optional<bool> matches_node(std::string target, const std::string& node) {
  if (target.starts_with('!')) {
    const std::optional<bool> rest = matches_node(target.substr(1), node);
    return rest ? std::optional(!*rest) : rest;
  }
  if (target.empty()) return std::nullopt;
  const bool is_enclosed = target.size() > 1;
  const std::string inside = is_enclosed ? target.substr(1, target.size() - 2) : "";
  if (is_enclosed && target.front() == '/' && target.back() == '/') {
    regex_t regex;
    if (::regcomp(&regex, inside.c_str(), REG_EXTENDED | REG_NOSUB) != 0) return std::nullopt;
    const bool found = ::regexec(&regex, node.c_str(), 0, nullptr, 0) == 0;
    ::regfree(&regex);
    return found;
  }
  if (is_enclosed && target.front() == '{' && target.back() == '}') {
    for (const std::string& group : split(inside, ',')) {
      const std::size_t open = group.find('['), dash = group.find('-', open), close = group.find(']', open);
      if (open == std::string::npos && group.find(']') == std::string::npos) {
        if (group == node) return true;
        continue;
      }
      if (open == std::string::npos || dash >= close || close == std::string::npos) return std::nullopt;
      const std::string prefix = group.substr(0, open), suffix = group.substr(close + 1);
      const std::string first = group.substr(open + 1, dash - open - 1),
                        last = group.substr(dash + 1, close - dash - 1);
      const bool is_range = is_digits(first) && is_digits(last) && first.size() == last.size() && first <= last;
      if (!is_range || suffix.find_first_of("[]") != std::string::npos) return std::nullopt;
      if (node.size() != prefix.size() + first.size() + suffix.size() || !node.starts_with(prefix)) continue;
      const std::string number = node.substr(prefix.size(), first.size());
      if (node.ends_with(suffix) && is_digits(number) && first <= number && number <= last) return true;
    }
    return false;
  }
  constexpr std::string_view kGlobEnds = "*?[]._-";  // other marks at both ends: a program of the site is asked
  const auto is_mark = [&](char c) {
    return std::ispunct(static_cast<unsigned char>(c)) && kGlobEnds.find(c) == std::string_view::npos;
  };
  if (is_enclosed && is_mark(target.front()) && is_mark(target.back())) return std::nullopt;
  return ::fnmatch(target.c_str(), node.c_str(), 0) == 0;
}

std::optional<Words> shell_words(std::string_view command) {
  Words words;
  bool in_word = false;
  char quote = '\0';
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (quote == '\0' && has_char(kBlanks, c)) {
      in_word = false;
      continue;
    }
    if (quote == '\0' && !in_word && c == '#') break;
    if (quote != '\'' && (c == '$' || c == '`')) return std::nullopt;
    if (quote == '\0' && has_char(";&|<>()", c)) return std::nullopt;
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == quote) {
      quote = '\0';
    } else if (quote == '\0' && (c == '"' || c == '\'')) {
      quote = c;
    } else if (quote != '\'' && c == '\\' && i + 1 < command.size()) {
      words.back() += command[++i];
    } else {
      words.back() += c;
    }
  }
  return quote == '\0' ? std::optional(words) : std::nullopt;
}

std::optional<NhcOptions> nhc_options_of(const Words& words, std::string_view flags, std::string_view with_value) {
  NhcOptions options;
  std::size_t at = 1;
  for (; at < words.size() && words[at].size() > 1 && words[at][0] == '-' && words[at] != "--"; ++at) {
    const std::string word = words[at];  // "-0r", "-f/home", "-f" "/home"
    for (std::size_t i = 1; i < word.size(); ++i) {
      if (has_char(with_value, word[i])) {
        if (i + 1 == word.size() && ++at == words.size()) return std::nullopt;
        options.given[word[i]] = i + 1 == word.size() ? words[at] : word.substr(i + 1);
        break;
      }
      if (!has_char(flags, word[i])) return std::nullopt;
      options.given[word[i]] = "";
    }
  }
  if (at < words.size() && words[at] == "--") ++at;
  options.rest.assign(words.begin() + static_cast<std::ptrdiff_t>(std::min(at, words.size())), words.end());
  return options;
}

std::vector<std::pair<std::size_t, std::string>> nhc_lines(std::string_view text) {
  std::vector<std::pair<std::size_t, std::string>> lines;
  std::string line;
  std::size_t number = 1, first = 1;
  const auto end_line = [&] {
    const std::string_view bare = trim(line);
    if (!bare.empty() && !bare.starts_with('#')) lines.emplace_back(first, bare);
    line.clear();
    first = ++number;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      if (text[++i] == '\n') {
        ++number;
      } else {
        line += text[i];
      }
    } else if (text[i] == '\n') {
      end_line();
    } else {
      line += text[i];
    }
  }
  end_line();
  return lines;
}

}  // namespace ms::health
