// Dispatch, parsing, help and misuse, all from the one table that the manual page is made of too. CLI11 reads the words
// of a command; what is said about them, right or wrong, is ours. The command itself is no CLI11 subcommand: CLI11
// looks for those among the positionals too, and a file may have the name of a command.
#include "base/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>

#include "base/completion.h"
#include "base/error.h"
#include "base/help.h"
#include "base/log.h"
#include "base/man.h"
#include "base/number.h"
#include "base/other_names.h"
#include "base/print.h"
#include "base/text.h"
#include "base/unexpected.h"
#include "base/version.h"

namespace ms {
namespace {

// A mistake of the user on the command line. It is no ms::Error because its report also shows the command's usage.
struct Misuse {
  std::string message;
};

std::string or_nearest(std::string_view name, const std::vector<std::string>& names) {
  const auto near = nearest_name(name, names);
  return near ? fmt::format(", did you mean '{}'?", *near) : "";
}

// How a word that people use is given here, "\nhint: ..."; empty: nobody knows what is meant.
template <std::size_t N>
std::string hint_for(const OtherWords (&rows)[N], std::string_view tool, const std::string& word) {
  for (const auto& [tool_name, words, ours] : rows) {
    if (tool_name == tool && std::ranges::count(split(words, ' '), word) > 0) return fmt::format("\nhint: {}", ours);
  }
  return "";
}

// A NUL, which no word of a command line can hold, at the end of every "--name=value": CLI11 would take the next word
// for the value of "--name=", and "--flag=true" for "--flag".
std::string mark(std::string word) {
  if (word.starts_with("--") && word.find('=') != std::string::npos) word += '\0';
  return word;
}
std::string unmark(std::string word) {
  if (word.ends_with('\0')) word.pop_back();
  return word;
}

// Reads the words of one command by its table, as GNU programs do: options and positionals in any order, "--name value"
// or "--name=value", "-n value" or "-nvalue", flags as "-ab", and after "--" only positionals. A value may start with a
// dash. Names are never abbreviated.
class Parser {
 public:
  Parser(const Tool& tool, const Command& command) : tool_(tool.name), command_(command) {
    app_.set_help_flag();  // the help is ours, and asking for it is no exception
    app_.allow_extras();   // refused here, with the name that was meant
    app_.allow_windows_style_options(false);
    help_ = app_.add_flag("--help,-h");
    for (const Positional& row : command.positionals) {
      MS_ASSERT(!row.many || &row == &command.positionals.back(), "positional {} takes all that follows", row.name);
      // CLI11 hands words to a positional while it has fewer than it expects. (Its "extra args" would do for many too,
      // but splits a word such as "[a,b]".)
      positionals_.push_back(app_.add_option(row.name)->expected(row.many ? kMany : 1));
    }
    for (const Option& row : command.options) {
      const std::string names = row.letter ? fmt::format("--{},-{}", row.name, row.letter) : "--" + row.name;
      options_.push_back(row.value.empty() ? app_.add_flag(names) : app_.add_option(names));
    }
    for (CLI::Option* option : app_.get_options()) option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }

  // nullopt where help was asked for.
  std::optional<Args> parse(const std::vector<std::string>& words) {
    std::vector<std::string> reversed;  // as CLI11 wants them
    std::transform(words.rbegin(), words.rend(), std::back_inserter(reversed), mark);
    try {
      app_.parse(std::move(reversed));
    } catch (const CLI::ArgumentMismatch&) { refuse_without_value(words.back()); }
    if (help_->count() > 0) return std::nullopt;
    refuse_extras();
    Args::Values values;
    std::map<std::string, std::string, std::less<>> defaults;
    for (std::size_t i = 0; i < options_.size(); ++i) {
      const Option& row = command_.options[i];
      defaults[row.name] = row.default_text;
      if (options_[i]->count() == 0) {
        if (row.required) throw Misuse{fmt::format("--{} {} is missing", row.name, row.value)};
        continue;
      }
      if (options_[i]->count() > 1 && !row.many) throw Misuse{fmt::format("--{} is given twice", row.name)};
      values[row.name] = row.value.empty() ? flag(row, options_[i]->results()) : unmarked(options_[i]->results());
    }
    for (std::size_t i = 0; i < positionals_.size(); ++i) {
      const Positional& row = command_.positionals[i];
      defaults[row.name] = "";
      if (positionals_[i]->count() > 0) {
        values[row.name] = unmarked(positionals_[i]->results());
      } else if (row.required) {
        throw Misuse{fmt::format("{} is missing", row.name)};
      }
    }
    return Args(std::move(values), std::move(defaults));
  }

 private:
  static std::vector<std::string> unmarked(std::vector<std::string> words) {
    std::transform(words.begin(), words.end(), words.begin(), unmark);
    return words;
  }
  static std::vector<std::string> flag(const Option& row, const std::vector<std::string>& results) {
    if (results.front() != "true") throw Misuse{fmt::format("--{} takes no value", row.name)};
    return {""};
  }

  // The words ended where a value was due: the last one is "--name", "-n", or flags and then "n".
  [[noreturn]] void refuse_without_value(const std::string& word) const {
    const std::string name = word.starts_with("--") ? word : fmt::format("-{}", word.back());
    const auto at = std::find(options_.begin(), options_.end(), app_.get_option_no_throw(name));
    MS_ASSERT(at != options_.end(), "'{}' is not an option of {}", name, command_.name);
    throw Misuse{fmt::format("{} needs a value, {}", name,
                             command_.options[static_cast<std::size_t>(at - options_.begin())].value)};
  }

  // Throws Misuse for words that CLI11 could not place ("--" is among them), and for words that it took for positionals
  // although they start with a dash ("-5", "--!").
  void refuse_extras() const {
    bool options_end = false;
    for (const std::string& word : app_.remaining()) {
      if (options_end || !looks_like_option(word)) {
        const bool is_setting = takes_settings() && word.find('=') != std::string::npos;
        throw Misuse{fmt::format("unexpected argument '{}'{}", unmark(word),
                                 is_setting ? fmt::format(", did you mean '--set {}'?", unmark(word))
                                            : hint_for(kOtherArguments, tool_, command_.name))};
      }
      if (word != "--") refuse_option(word);
      options_end = true;
    }
    if (options_end) return;
    for (const CLI::Option* positional : positionals_) {
      for (const std::string& word : positional->results()) {
        if (looks_like_option(word)) refuse_option(word);
      }
    }
  }
  static bool looks_like_option(const std::string& word) { return word.starts_with('-') && word != "-"; }

  [[noreturn]] void refuse_option(const std::string& word) const {
    const std::string name = word.substr(0, word.starts_with("--") ? word.find('=') : 2);
    std::vector<std::string> names{"--help"};
    for (const Option& option : command_.options) names.push_back("--" + option.name);
    std::string meant = hint_for(kOtherOptions, tool_, name);
    if (meant.empty()) meant = or_nearest(name, names);
    if (meant.empty() && takes_settings() && name.size() > 2 && std::isalpha(static_cast<unsigned char>(name[2])) != 0)
      meant = "; keys of the configuration are set with --set SECTION.KEY=VALUE";
    throw Misuse{fmt::format("unknown option '{}'{}", name, meant)};
  }
  bool takes_settings() const {
    return std::ranges::any_of(command_.options,
                               [](const Option& o) { return o.name == "set" && o.value == "KEY=VALUE"; });
  }

  static constexpr int kMany = CLI::detail::expected_max_vector_size - 1;

  const std::string& tool_;
  const Command& command_;
  CLI::App app_;
  CLI::Option* help_ = nullptr;
  std::vector<CLI::Option*> positionals_, options_;  // in the order of the table
};

int print_result(const std::string& text) {
  write_out(text);
  return 0;
}

const Command& find_command(const Tool& tool, const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : tool.commands) {
    if (command.name == name) return command;
    names.push_back(command.name);
  }
  if (name.starts_with('-')) throw Misuse{fmt::format("unknown option '{}'", name)};
  if (name.ends_with(".toml")) throw Misuse{fmt::format("a command is missing before '{}'", name)};
  for (const auto& [tool_name, theirs, ours] : kOtherCommands) {
    if (tool_name == tool.name && std::ranges::count(split(theirs, ' '), name) > 0)
      throw Misuse{fmt::format("unknown command '{}'\nhint: {}", name, ours)};
  }
  throw Misuse{fmt::format("unknown command '{}'{}", name, or_nearest(name, names))};
}

std::string completion_of(const Tool& tool, const std::vector<std::string>& words) {
  if (words.size() != 2) throw Misuse{"--completion needs a value, SHELL"};
  const std::optional<std::string> script = completion_script(tool, words[1]);
  if (!script) throw Misuse{fmt::format("--completion {}: expected bash, zsh or fish", words[1])};
  return *script;
}

int dispatch(const Tool& tool, const std::vector<std::string>& words) {
  std::string usage = "COMMAND [options]";
  std::string help = tool.name + " --help";
  try {
    if (words.empty()) throw Misuse{"a command is missing"};
    const std::string& first = words[0];
    if (first == "--help" || first == "-h") return print_result(tool_help(tool));
    if (first == "--version") return print_result(fmt::format("{} {}\n", tool.name, kVersion));
    if (first == "--man") return print_result(man::tool_page(tool));
    if (first == "--completion") return print_result(completion_of(tool, words));
    if (first == "--man-exit") return print_result(man::exit_page());
    for (const ExtraPage& page : tool.extra_pages) {
      if (first == page.option) return print_result(page.text());
    }
    const bool only_check = first == "--check" && words.size() > 1;
    const auto begin = words.begin() + (only_check ? 1 : 0);
    const Command& command = find_command(tool, *begin);
    usage = command.name + " " + synopsis(command);
    help = fmt::format("{} {} --help", tool.name, command.name);
    const std::optional<Args> args = Parser(tool, command).parse({begin + 1, words.end()});
    if (!args) return print_result(command_help(tool, command));
    if (only_check) return print_result("ok\n");
    if (const char* filter = std::getenv("MS_LOG")) log::set_filter(filter);
    return command.run(*args);
  } catch (const Misuse& misuse) {
    if (tool.before_error) tool.before_error();
    print_err("{}: error: {}\nusage: {} {}  (try '{}')\n", tool.name, misuse.message, tool.name, usage, help);
    return tool.failure_status.value_or(static_cast<int>(ExitCode::usage));
  }
}

// An option as it is typed; the names of positionals are in capitals.
std::string typed_name(std::string_view name) {
  const bool positional = !name.empty() && std::isupper(static_cast<unsigned char>(name.front())) != 0;
  return positional ? std::string(name) : fmt::format("--{}", name);
}

template <class Parse>
auto parse_or_refuse(std::string_view name, const std::string& text, std::string_view expected, Parse parse_text) {
  const auto value = parse_text(text);
  if (!value) throw user_error("cli.value", fmt::format("{}: expected {}, got '{}'", typed_name(name), expected, text));
  return *value;
}

}  // namespace

bool Args::has(std::string_view name) const {
  MS_ASSERT(defaults_.contains(name), "the command declares no '{}'", name);
  return given_.contains(name);
}

std::string Args::get(std::string_view name) const {
  return has(name) ? given_.find(name)->second.back() : defaults_.find(name)->second;
}

std::vector<std::string> Args::list(std::string_view name) const {
  if (has(name)) return given_.find(name)->second;
  const std::string& text = defaults_.find(name)->second;
  return text.empty() ? std::vector<std::string>{} : std::vector<std::string>{text};
}

std::int64_t Args::get_int(std::string_view name, std::int64_t min, std::int64_t max) const {
  const auto parse = [](const std::string& text) { return whole_number<std::int64_t>(text); };
  const std::int64_t value = parse_or_refuse(name, get(name), "an integer", parse);
  if (value < min || value > max) {
    const std::string range = max == std::numeric_limits<std::int64_t>::max()   ? fmt::format("at least {}", min)
                              : min == std::numeric_limits<std::int64_t>::min() ? fmt::format("at most {}", max)
                                                                                : fmt::format("{} to {}", min, max);
    throw user_error("cli.value", fmt::format("{}: must be {}, got {}", typed_name(name), range, value));
  }
  return value;
}

double Args::get_double(std::string_view name) const {
  return parse_or_refuse(name, get(name), "a number",
                         [](const std::string& text) { return whole_number<double>(text); });
}

double Args::get_seconds(std::string_view name) const {
  return parse_or_refuse(name, get(name), "a duration such as 30s or 1h30m", [](const std::string& text) {
    const auto plain = whole_number<double>(text);
    return plain && *plain >= 0 && *plain <= kMaxDuration_s ? plain : parse_duration_s(text);
  });
}

int run_tool(const Tool& tool, int argc, const char* const* argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit of ulimit -f fails then, and whoever writes says so
  int status = static_cast<int>(ExitCode::bug);
  const auto report = [&tool](const Error& error) {
    if (tool.before_error) tool.before_error();
    print_err("{}: error: {}\n", tool.name, error.message());
    if (!error.hint().empty()) print_err("hint: {}\n", error.hint());
    return tool.failure_status.value_or(static_cast<int>(exit_code(error.blame())));
  };
  end_on_uncaught(tool.name.c_str());
  spare_address_space();
  try {
    status = dispatch(tool, std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  } catch (const std::exception& thrown) {
    const Error error = error_of(thrown, "tool.bug");
    if (error.blame() != Blame::bug) return report(error);
    print_err("{}: bug: {}\n", tool.name, error.message());
    return static_cast<int>(ExitCode::bug);
  }
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    const std::string reason = errno == 0 ? "a write failed" : errno_text(errno);
    print_err("{}: error: cannot write the results to standard output: {}\n", tool.name, reason);
    return static_cast<int>(ExitCode::storage);
  }
  return status;
}

int run_tool(const char* name, Tool (*make)(), int argc, const char* const* argv) {
  end_on_uncaught(name);
  std::optional<Tool> tool;
  try {
    tool.emplace(make());
  } catch (const std::exception& thrown) {
    const Error error = error_of(thrown, "tool.bug");
    print_err("{}: error: {}\n", name, error.message());
    return static_cast<int>(exit_code(error.blame()));
  }
  return run_tool(*tool, argc, argv);
}

}  // namespace ms
