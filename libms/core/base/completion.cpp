#include "base/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"

namespace ms {
namespace {

// The options of every tool itself, before a command.
constexpr std::array<std::string_view, 5> kToolOptions{"--help", "--version", "--man", "--completion", "--check"};

// Values that name a file or a directory.
constexpr std::array<std::string_view, 5> kPaths{"FILE", "DIR", "PREFIX", "PROGRAM", "NAME=PREFIX"};

// "FILE|RATE" may be a file, too.
bool names_a_path(const Option& option) {
  return std::ranges::any_of(split(option.value, '|'),
                             [](const std::string& part) { return std::ranges::find(kPaths, part) != kPaths.end(); });
}

// The first sentence of a doc, without the marks that shells give a meaning.
std::string brief(std::string_view doc) {
  std::string text(doc.substr(0, doc.find(". ")));
  if (text.ends_with('.')) text.pop_back();
  std::erase_if(text, [](char c) { return std::string_view("'\"`\\$[]:").find(c) != std::string_view::npos; });
  return text;
}

std::string function_name(const Tool& tool) {
  std::string name = "_" + tool.name;
  std::ranges::replace(name, '-', '_');
  return name;
}

std::vector<std::string> command_names(const Tool& tool) {
  std::vector<std::string> names;
  for (const Command& command : tool.commands) names.push_back(command.name);
  return names;
}

std::string bash_cases(const Tool& tool) {
  std::string text;
  for (const Command& command : tool.commands) {
    for (const Option& option : command.options) {
      if (option.value.empty()) continue;
      std::string pattern = fmt::format("'{} --{}'", command.name, option.name);
      if (option.letter != 0) pattern += fmt::format(" | '{} -{}'", command.name, option.letter);
      const std::vector<std::string> words = value_words(option);
      const std::string action = !words.empty()         ? fmt::format("words='{}'", fmt::join(words, " "))
                                 : names_a_path(option) ? std::string("compopt -o default")
                                                        : std::string(":");
      text += fmt::format("    {}) {}; value=yes ;;\n", pattern, action);
    }
  }
  return text;
}

std::string bash_script(const Tool& tool) {
  std::string options;
  for (const Command& command : tool.commands) {
    std::string names = "--help";
    for (const Option& option : command.options) names += " --" + option.name;
    options += fmt::format("    {}) words='{}' ;;\n", command.name, names);
  }
  // "=" parts words for bash: "--name=va" is "--name", "=" and "va".
  return fmt::format(
      R"(# Completion of {0} for bash, as '{0} --completion bash' prints it.
{1}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} words='' value='' i
  if [[ $current == = ]]; then current=''; elif [[ $previous == = ]]; then previous=${{COMP_WORDS[COMP_CWORD - 2]}}; fi
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W '{2} {3}' -- "$current")
    return
  fi
  if [[ ${{COMP_WORDS[1]}} == --completion ]]; then
    mapfile -t COMPREPLY < <(compgen -W 'bash zsh fish' -- "$current")
    return
  fi
  for ((i = 2; i < COMP_CWORD; i++)); do
    if [[ ${{COMP_WORDS[i]}} == -- ]]; then compopt -o default && return; fi
  done
  case "${{COMP_WORDS[1]}} $previous" in
{4}  esac
  if [[ -z $value && $current == -* ]]; then
    case ${{COMP_WORDS[1]}} in
{5}    esac
  elif [[ -z $value ]]; then
    compopt -o default
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -F {1} {0}
)",
      tool.name, function_name(tool), fmt::join(command_names(tool), " "), fmt::join(kToolOptions, " "),
      bash_cases(tool), options);
}

std::string zsh_value(const Option& option) {
  if (option.value.empty()) return {};
  const std::vector<std::string> words = value_words(option);
  if (!words.empty()) return fmt::format(":{}:({})", option.name, fmt::join(words, " "));
  return fmt::format(":{}:{}", brief(option.value), names_a_path(option) ? "_files" : " ");
}

std::string zsh_arguments(const Command& command) {
  std::string text = "      _arguments -s";
  for (const Option& option : command.options) {
    const std::string rest = fmt::format("[{}]{}", brief(option.doc), zsh_value(option));
    const std::string many = option.many ? "*" : "";
    const std::string equals = option.value.empty() ? "" : "=";
    text += fmt::format(" \\\n        '{}--{}{}{}'", many, option.name, equals, rest);
    if (option.letter != 0) {
      text += fmt::format(" \\\n        '{}-{}{}{}'", many, option.letter, option.value.empty() ? "" : "+", rest);
    }
  }
  text += " \\\n        '--help[Show the options]'";
  for (const Positional& positional : command.positionals) {
    text += fmt::format(" \\\n        '{}:{}:_files'",
                        positional.many       ? "*"
                        : positional.required ? ""
                                              : ":",
                        positional.name);
  }
  return text + "\n";
}

std::string zsh_script(const Tool& tool) {
  std::string commands;
  std::string cases;
  for (const Command& command : tool.commands) {
    commands += fmt::format("    '{}:{}'\n", command.name, brief(command.summary));
    cases += fmt::format("    {})\n{}      ;;\n", command.name, zsh_arguments(command));
  }
  return fmt::format(
      R"(#compdef {0}
# Completion of {0} for zsh, as '{0} --completion zsh' prints it.
{1}() {{
  local -a commands
  commands=(
{2}  )
  if ((CURRENT == 2)); then
    if [[ $words[2] == -* ]]; then compadd -- {3}; else _describe command commands; fi
    return
  fi
  local command=$words[2]
  shift words
  ((CURRENT--))
  case $command in
{4}    --completion) compadd bash zsh fish ;;
  esac
}}
{1} "$@"
)",
      tool.name, function_name(tool), commands, fmt::join(kToolOptions, " "), cases);
}

std::string fish_script(const Tool& tool) {
  std::string text = fmt::format("# Completion of {0} for fish, as '{0} --completion fish' prints it.\n", tool.name);
  for (const std::string_view option : kToolOptions) {
    text += fmt::format("complete -c {} -n __fish_use_subcommand -l {}{}\n", tool.name, option.substr(2),
                        option == "--completion" ? " -x -a 'bash zsh fish'" : "");
  }
  for (const Command& command : tool.commands) {
    text += fmt::format("complete -c {} -n __fish_use_subcommand -f -a {} -d '{}'\n", tool.name, command.name,
                        brief(command.summary));
    const std::string start =
        fmt::format("complete -c {} -n '__fish_seen_subcommand_from {}'", tool.name, command.name);
    for (const Option& option : command.options) {
      text += fmt::format("{} -l {}", start, option.name);
      if (option.letter != 0) text += fmt::format(" -s {}", option.letter);
      const std::vector<std::string> words = value_words(option);
      if (!words.empty()) {
        text += fmt::format(" -x -a '{}'", fmt::join(words, " "));
      } else if (!option.value.empty()) {
        text += names_a_path(option) ? " -r -F" : " -x";
      }
      text += fmt::format(" -d '{}'\n", brief(option.doc));
    }
  }
  return text;
}

struct Shell {
  std::string_view name;
  std::string (*script)(const Tool&);
};
constexpr std::array<Shell, 3> kShells{{{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}}};

}  // namespace

std::vector<std::string> value_words(const Option& option) {
  std::vector<std::string> words = split(option.value, '|');
  if (words.size() < 2) return {};
  std::erase_if(words, [](const std::string& word) { return word.front() >= 'A' && word.front() <= 'Z'; });
  return words;
}

std::optional<std::string> completion_script(const Tool& tool, std::string_view shell) {
  for (const Shell& row : kShells) {
    if (row.name == shell) return row.script(tool);
  }
  return std::nullopt;
}

}  // namespace ms
