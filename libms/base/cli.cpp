// Dispatch, parsing, help and misuse, all from the one table that the manual page is made of too. The parser is ours:
// CLI11 was tried, and keeping it to these rules (empty values, "--", flags without values, a message for each misuse)
// took more code than the rules themselves.
#include "base/cli.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/man.h"
#include "base/text.h"
#include "base/version.h"

namespace ms {
namespace {

constexpr std::size_t kHelpWidth = 100;

// What the user did wrong on the command line. Not an ms::Error: its report shows the usage of the command too.
struct Misuse {
  std::string message;
};

struct HelpRow {
  std::string left;
  std::string right;
};

std::string help_rows(std::string_view title, const std::vector<HelpRow>& rows) {
  std::size_t indent = 0;
  for (const HelpRow& row : rows) indent = std::max(indent, row.left.size() + 4);
  std::string text = fmt::format("\n{}:\n", title);
  for (const HelpRow& row : rows) {
    std::string left = "  " + row.left;
    for (const std::string& line : wrap(row.right, kHelpWidth - indent)) {
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

std::string tool_help(const Tool& tool) {
  std::vector<HelpRow> rows;
  for (const Command& command : tool.commands) rows.push_back({command.name, command.summary});
  return fmt::format("usage: {} COMMAND [options]\n\n{}: {}\n", tool.name, tool.name, tool.summary) +
         help_rows("commands", rows) +
         fmt::format("\n'{} COMMAND --help' shows the options of a command; the manual is {}(1).\n", tool.name,
                     tool.name);
}

std::string command_help(const Tool& tool, const Command& command) {
  std::string text =
      fmt::format("usage: {} {} {}\n\n{}\n", tool.name, command.name, synopsis(command), command.summary);
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

std::string or_nearest(std::string_view name, const std::vector<std::string>& names) {
  const auto near = nearest_name(name, names);
  return near ? fmt::format(", did you mean '{}'?", *near) : "";
}

// Reads the words of one command by its table, as GNU programs do: options and positionals in any order, "--name value"
// or "--name=value", "-n value" or "-nvalue", and after "--" only positionals. Names are never abbreviated.
class Parser {
 public:
  Parser(const Command& command, std::vector<std::string> words) : command_(command), words_(std::move(words)) {}

  // nullopt where help was asked for.
  std::optional<Args> parse() {
    bool options_end = false;
    while (next_ < words_.size()) {
      const std::string word = words_[next_++];
      if (options_end || !word.starts_with('-') || word == "-") {
        positionals_.push_back(word);
      } else if (word == "--") {
        options_end = true;
      } else if (word == "--help" || word == "-h") {
        return std::nullopt;
      } else {
        take_option(word);
      }
    }
    place_positionals();
    std::map<std::string, std::string, std::less<>> defaults;
    for (const Positional& positional : command_.positionals) defaults[positional.name] = "";
    for (const Option& option : command_.options) defaults[option.name] = option.default_text;
    return Args(std::move(values_), std::move(defaults));
  }

 private:
  void take_option(const std::string& word) {
    const bool is_long = word.starts_with("--");
    const std::size_t name_end = is_long ? word.find('=') : std::min<std::size_t>(2, word.size());
    const std::string name = word.substr(0, name_end);
    const auto option = std::find_if(command_.options.begin(), command_.options.end(), [&](const Option& row) {
      return is_long ? name == "--" + row.name : row.letter == name[1];
    });
    if (option == command_.options.end()) refuse_option(name);
    std::vector<std::string>& values = values_[option->name];
    if (!values.empty() && !option->many) throw Misuse{fmt::format("{} is given twice", name)};
    const bool attached = name.size() < word.size();
    if (option->value.empty()) {
      if (attached) throw Misuse{fmt::format("{} takes no value", name)};
      values.emplace_back();
    } else if (attached) {
      values.push_back(word.substr(name.size() + (is_long ? 1 : 0)));
    } else {
      // The next word is the value even if it starts with a dash: negative numbers are values too.
      if (next_ == words_.size()) throw Misuse{fmt::format("{} needs a value, {}", name, option->value)};
      values.push_back(words_[next_++]);
    }
  }

  [[noreturn]] void refuse_option(const std::string& name) const {
    std::vector<std::string> names{"--help"};
    for (const Option& option : command_.options) names.push_back("--" + option.name);
    throw Misuse{fmt::format("unknown option '{}'{}", name, or_nearest(name, names))};
  }

  void place_positionals() {
    std::size_t used = 0;
    for (const Positional& row : command_.positionals) {
      MS_ASSERT(!row.many || &row == &command_.positionals.back(), "positional {} takes all that follows", row.name);
      if (used == positionals_.size()) {
        if (row.required) throw Misuse{fmt::format("{} is missing", row.name)};
        continue;
      }
      const std::size_t count = row.many ? positionals_.size() - used : 1;
      for (std::size_t i = 0; i < count; ++i) values_[row.name].push_back(positionals_[used++]);
    }
    if (used < positionals_.size()) throw Misuse{fmt::format("unexpected argument '{}'", positionals_[used])};
  }

  const Command& command_;
  std::vector<std::string> words_;
  std::size_t next_ = 0;
  std::vector<std::string> positionals_;
  Args::Values values_;
};

int print_result(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return 0;
}

const Command& find_command(const Tool& tool, const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : tool.commands) {
    if (command.name == name) return command;
    names.push_back(command.name);
  }
  if (name.starts_with('-')) throw Misuse{fmt::format("unknown option '{}'", name)};
  throw Misuse{fmt::format("unknown command '{}'{}", name, or_nearest(name, names))};
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
    if (first == "--man-exit") return print_result(man::exit_page());
    for (const ExtraPage& page : tool.extra_pages) {
      if (first == page.option) return print_result(page.text());
    }
    const Command& command = find_command(tool, first);
    usage = command.name + " " + synopsis(command);
    help = fmt::format("{} {} --help", tool.name, command.name);
    const std::optional<Args> args = Parser(command, {words.begin() + 1, words.end()}).parse();
    if (!args) return print_result(command_help(tool, command));
    if (const char* filter = std::getenv("MS_LOG")) log::set_filter(filter);
    return command.run(*args);
  } catch (const Misuse& misuse) {
    fmt::print(stderr, "{}: error: {}\nusage: {} {}  (try '{}')\n", tool.name, misuse.message, tool.name, usage, help);
    return static_cast<int>(ExitCode::usage);
  }
}

template <class Parse>
auto parse_or_refuse(std::string_view name, const std::string& text, std::string_view expected, Parse parse_text) {
  const auto value = parse_text(text);
  if (!value) throw user_error("cli.value", fmt::format("{}: expected {}, got '{}'", name, expected, text));
  return *value;
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
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
  const std::int64_t value = parse_or_refuse(name, get(name), "an integer", parse_number<std::int64_t>);
  if (value < min || value > max) {
    const std::string range = max == std::numeric_limits<std::int64_t>::max()   ? fmt::format("at least {}", min)
                              : min == std::numeric_limits<std::int64_t>::min() ? fmt::format("at most {}", max)
                                                                                : fmt::format("{} to {}", min, max);
    throw user_error("cli.value", fmt::format("{}: must be {}, got {}", name, range, value));
  }
  return value;
}

double Args::get_double(std::string_view name) const {
  return parse_or_refuse(name, get(name), "a number", parse_number<double>);
}

double Args::get_seconds(std::string_view name) const {
  return parse_or_refuse(name, get(name), "a duration such as 30s or 1h30m", [](const std::string& text) {
    const auto plain = parse_number<double>(text);
    return plain && *plain >= 0 ? plain : parse_duration_s(text);
  });
}

std::string synopsis(const Command& command) {
  std::string text = command.options.empty() ? "" : "[options]";
  for (const Positional& positional : command.positionals) text += " " + positional_text(positional);
  return std::string(trim(text));
}

int run_tool(const Tool& tool, int argc, const char* const* argv) {
  int status = static_cast<int>(ExitCode::bug);
  try {
    status = dispatch(tool, std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  } catch (const Error& error) {
    fmt::print(stderr, "{}: error: {}\n", tool.name, error.message());
    if (!error.hint().empty()) fmt::print(stderr, "hint: {}\n", error.hint());
    return static_cast<int>(exit_code(error.blame()));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: bug: {}\n", tool.name, error.what());
    return static_cast<int>(ExitCode::bug);
  }
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    const std::string reason = errno == 0 ? "a write failed" : errno_text(errno);
    fmt::print(stderr, "{}: error: cannot write the results to standard output: {}\n", tool.name, reason);
    return static_cast<int>(ExitCode::storage);
  }
  return status;
}

}  // namespace ms
