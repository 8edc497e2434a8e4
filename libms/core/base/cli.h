// Command lines. A tool is a table of commands, a command a table of positionals and options; the table drives parsing,
// help, misuse and the manual page (man.h). main() is: return run_tool(tool, argc, argv);
//
//   const Tool tool{.name = "ms-data", .summary = "text to token files", .commands = {
//       {.name = "inspect", .summary = "show what a token file holds",
//        .positionals = {{.name = "FILE", .doc = "Token files.", .many = true}},
//        .options = {{.name = "json", .doc = "One JSON document instead of a table."}},
//        .run = [](const Args& args) { return inspect(args.list("FILE"), args.has("json")); }}}};
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ms {

struct Positional {
  std::string name;  // in capitals: "FILE"
  std::string doc;   // a sentence
  bool required = true;
  bool many = false;  // only the last one
};

struct Option {
  std::string name;               // long, without dashes: "config"
  std::string value = {};         // name of its value, in capitals, or its words, "a|b"; empty: a flag
  std::string doc;                // a sentence
  std::string default_text = {};  // what get() returns if it is not given
  char letter = 0;                // also as -c
  bool many = false;              // may be given several times
  bool required = false;
};

// The arguments that the user gave to one command. Names are those of the table; any other name is a bug of ours.
class Args {
 public:
  using Values = std::map<std::string, std::vector<std::string>, std::less<>>;
  // `defaults` holds every name that the command declares.
  Args(Values given, std::map<std::string, std::string, std::less<>> defaults)
      : given_(std::move(given)), defaults_(std::move(defaults)) {}

  bool has(std::string_view name) const;                       // was it given? (also: the value of a flag)
  std::string get(std::string_view name) const;                // the value, or the default, which may be empty
  std::vector<std::string> list(std::string_view name) const;  // all values given; else the default, if there is one
  // Error("cli.value", user) where the text is not such a number. A duration has a unit ("30s") or is in seconds.
  std::int64_t get_int(std::string_view name, std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t max = std::numeric_limits<std::int64_t>::max()) const;
  double get_double(std::string_view name) const;
  double get_seconds(std::string_view name) const;

 private:
  Values given_;
  std::map<std::string, std::string, std::less<>> defaults_;
};

struct Command {
  std::string name;
  std::string summary;  // half a sentence, lower case, no full stop
  std::vector<Positional> positionals = {};
  std::vector<Option> options = {};
  std::function<int(const Args&)> run;  // returns the exit status; ms::Error is reported by run_tool
  std::string description = {};         // paragraphs for the manual, separated by empty lines
};

struct Example {
  std::string command;
  std::string doc;  // a sentence that ends in a colon
};

// A section of a tool's manual of its own: terms, each with what it means. Lines of a meaning that begin with four
// spaces are shown as they are, to be copied.
struct ManSection {
  std::string title;
  std::vector<std::pair<std::string, std::string>> items;
};

// A manual page that a tool prints beside its own: "--man-config" for ms.toml(5). Hidden from the help.
struct ExtraPage {
  std::string option;
  std::function<std::string()> text;
};

struct Tool {
  std::string name;
  std::string summary;  // half a sentence, lower case, no full stop
  std::vector<Command> commands;
  std::string description = {};  // paragraphs for the manual, separated by empty lines
  std::vector<Example> examples = {};
  std::vector<std::string> see_also = {};  // "ms-ckpt(1)"
  // Where they are not those of ms-exit(7). `failure_status` is then that of misuse and of errors.
  std::vector<std::pair<int, std::string>> exit_status = {};
  std::optional<int> failure_status = {};
  std::vector<std::pair<std::string, std::string>> environment = {};  // variables beside MS_LOG: name, what it does
  std::vector<ExtraPage> extra_pages = {};
  std::vector<ManSection> sections = {};    // of the manual, behind the commands
  std::function<void()> before_error = {};  // called before anything is said about misuse or an error
};

// "[options] FILE..." as usage lines show it.
std::string synopsis(const Command& command);

// Parses, runs the command, and returns the exit status of the process. --help, --version, --man, --completion and
// --check print to standard output and return 0; misuse says what is wrong on standard error and returns 2 (or
// failure_status); ms::Error is reported ("ms-data: error: ...", "hint: ...") and returns the code of its blame (or
// failure_status); anything else that is thrown is a bug, 70. Results that could not be written to standard output are
// storage, 74.
int run_tool(const Tool& tool, int argc, const char* const* argv);
// The same, for a tool whose table is made now, and not before main(): where memory does not do for that, the program
// says so and ends with 2, by no signal. `name`: for that message.
int run_tool(const char* name, Tool (*make)(), int argc, const char* const* argv);

}  // namespace ms
