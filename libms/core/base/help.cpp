#include "base/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace ms {
namespace {

constexpr std::size_t kHelpWidth = 80;
constexpr std::size_t kMostIndent = 28;  // of what is said of an option; longer names stand alone on their line

struct HelpRow {
  std::string left;
  std::string right;
};

// Breaks lists without blanks behind commas, too, where they are too long for a line.
std::vector<std::string> lines_of(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  for (std::string line : wrap(text, width)) {
    std::size_t comma = 0;
    while (line.size() > width && (comma = line.rfind(',', width - 1)) != std::string::npos) {
      lines.push_back(line.substr(0, comma + 1));
      line.erase(0, comma + 1);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string help_rows(std::string_view title, const std::vector<HelpRow>& rows) {
  std::size_t indent = 0;
  for (const HelpRow& row : rows) indent = std::max(indent, row.left.size() + 4);
  indent = std::min(indent, kMostIndent);
  std::string text = fmt::format("\n{}:\n", title);
  for (const HelpRow& row : rows) {
    std::string left = "  " + row.left;
    if (left.size() + 2 > indent) {
      text += left + "\n";
      left.clear();
    }
    for (const std::string& line : lines_of(row.right, kHelpWidth - indent)) {
      text += fmt::format("{:<{}}{}\n", left, indent, line);
      left.clear();
    }
  }
  return text;
}

std::string positional_text(const Positional& positional) {
  const std::string name = positional.name + (positional.many ? "..." : "");
  return positional.required ? name : "[" + name + "]";
}

}  // namespace

std::string synopsis(const Command& command) {
  std::string text = command.options.empty() ? "" : "[options]";
  for (const Positional& positional : command.positionals) text += " " + positional_text(positional);
  return std::string(trim(text));
}

std::string tool_help(const Tool& tool) {
  std::vector<HelpRow> rows;
  for (const Command& command : tool.commands) rows.push_back({command.name, command.summary});
  return fmt::format("usage: {} COMMAND [options]\n\n{}: {}\n", tool.name, tool.name, tool.summary) +
         help_rows("commands", rows) +
         help_rows("options", {{"--help", "Show this text."},
                               {"--version", "Show the version."},
                               {"--man", "Print the manual page, for 'man -l -'."},
                               {"--completion SHELL", "Print the shell completion for bash, zsh or fish."},
                               {"--check COMMAND...", "Only check whether this command line is valid."}}) +
         fmt::format("\n{}\n",
                     fmt::join(wrap(fmt::format("'{0} COMMAND --help' shows the options of a command; the manual "
                                                "is {0}(1), or '{0} --man | man -l -'.",
                                                tool.name),
                                    kHelpWidth),
                               "\n"));
}

std::string command_help(const Tool& tool, const Command& command) {
  std::string text = fmt::format("usage: {} {} {}\n\n{}\n", tool.name, command.name, synopsis(command),
                                 fmt::join(wrap(command.summary, kHelpWidth), "\n"));
  std::vector<HelpRow> rows;
  for (const Positional& p : command.positionals) rows.push_back({positional_text(p), p.doc});
  if (!rows.empty()) text += help_rows("arguments", rows);
  rows.clear();
  for (const Option& option : command.options) {
    std::string left = option.letter ? fmt::format("-{}, --{}", option.letter, option.name) : "--" + option.name;
    if (!option.value.empty()) left += " " + option.value;
    std::string right = option.doc;
    if (option.many) right += " May be given several times.";
    if (!option.default_text.empty()) right += fmt::format(" Default: {}.", option.default_text);
    rows.push_back({std::move(left), std::move(right)});
  }
  rows.push_back({"--help", "Show this text."});
  return text + help_rows("options", rows);
}

}  // namespace ms
