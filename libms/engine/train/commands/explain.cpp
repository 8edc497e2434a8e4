// One of the commands of train/commands/commands.h: says what an exit code or a kind of error means.
#include <algorithm>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/error_kinds.h"
#include "base/print.h"
#include "base/text.h"
#include "base/tool_exits.h"
#include "train/commands/commands.h"

namespace ms::train {
namespace {

constexpr int kMostCode = 255;
constexpr int kSignalled = 128;  // a shell's code, and srun's, of a process that a signal ended, less the signal
constexpr int kCannotExecute = 126;
constexpr int kNotFound = 127;
constexpr std::size_t kExplainWidth = 100;

struct ForeignCode {
  int code;
  std::string_view meaning;
};
constexpr ForeignCode kForeignCodes[] = {
    {kCannotExecute,
     "Not an exit code of ms: the program cannot be executed. Check its permissions, and the processor that it was "
     "built for."},
    {kNotFound,
     "Not an exit code of ms: the program, or a library that it needs, was not found on the node. Check PATH there, "
     "and the output of 'ldd'."},
    {kSignalled + SIGKILL,
     "Not an exit code of ms: the process was killed by SIGKILL. Usually the kernel or Slurm killed it for its use of "
     "memory: check dmesg on the node, and 'sacct -j JOB -o state,maxrss'. Or srun killed it after a peer of the step "
     "had failed: see the first cause in run.dir/verdict.json."},
    {kSignalled + SIGSEGV,
     "Not an exit code of ms: the process crashed because of a bug, or of bad memory in the node. Check the node with "
     "ms-diag run --level 2, and keep the core file."},
    {kSignalled + SIGTERM,
     "Not an exit code of ms: the process was ended by SIGTERM. The job was canceled, its time limit was reached, or a "
     "peer of the step had failed before: see the first cause in run.dir/verdict.json."},
};

bool is_common(int code) {
  return std::ranges::any_of(kExitCodes, [&](const ExitCodeRow& row) { return static_cast<int>(row.code) == code; });
}

std::optional<std::string> meaning_of(int code) {
  for (const ExitCodeRow& row : kExitCodes) {
    if (static_cast<int>(row.code) == code) return fmt::format("({}) {}", row.name, row.meaning);
  }
  for (const ForeignCode& row : kForeignCodes) {
    if (row.code == code) return std::string(row.meaning);
  }
  if (code > kSignalled && code < kSignalled + SIGRTMIN) {
    return fmt::format("Not an exit code of ms: the process was ended by signal {} ({}).", code - kSignalled,
                       strsignal(code - kSignalled));
  }
  return std::nullopt;
}

std::string indented(std::string_view text) {
  std::string result;
  for (const std::string& line : wrap(text, kExplainWidth)) result += "  " + line + "\n";
  return result;
}

std::string entry(std::string_view title, std::string_view text) {
  return fmt::format("{}\n{}", title, indented(text));
}

std::string everything() {
  std::string text = "Exit codes\n\n";
  for (const ExitCodeRow& row : kExitCodes) {
    text += entry(fmt::format("{} ({})", static_cast<int>(row.code), row.name), row.meaning);
  }
  text += "\nExit codes of single programs\n\n";
  for (const ToolExitRow& row : tool_exits()) text += entry(fmt::format("{} {}", row.tool, row.code), row.meaning);
  text += "\nKinds of errors\n\n";
  for (const ErrorKindRow& row : error_kinds()) text += entry(row.kind, row.meaning);
  return text;
}

// Returns the entry of a kind, or of all kinds whose first word it is.
std::string kinds_of(const std::string& word) {
  std::string text;
  std::vector<std::string> names;
  for (const ErrorKindRow& row : error_kinds()) {
    names.emplace_back(row.kind);
    if (row.kind == word || row.kind.starts_with(word + ".")) text += entry(row.kind, row.meaning);
  }
  if (!text.empty()) return text;
  const std::optional<std::string> near = nearest_name(word, names);
  throw user_error("cli.value", fmt::format("'{}' is neither an exit code nor a kind of error", word),
                   near ? fmt::format("did you mean {}?", *near) : "ms-train explain lists all");
}

// Says what an exit code means, of any program.
std::string code_text(int code) {
  std::string text;
  if (const std::optional<std::string> meaning = meaning_of(code)) text = indented(*meaning);
  bool of_one_program = false;
  for (const ToolExitRow& row : tool_exits()) {
    if (row.code != code) continue;
    of_one_program = true;
    text += indented(fmt::format("{}: {}", row.tool, row.meaning));
  }
  const std::string_view foreign = "It comes from the program that started ms: srun, the job script or the shell.";
  if (text.empty()) return indented(fmt::format("Not an exit code of ms. {}", foreign));
  if (of_one_program && !is_common(code))
    text += indented(fmt::format("No other program of ms exits with {}. {}", code, foreign));
  return text;
}

int run_explain(const Args& args) {
  if (!args.has("CODE")) {
    write_out(everything());
    return 0;
  }
  const std::string word = args.get("CODE");
  if (word.find_first_not_of("0123456789") != std::string::npos) {
    write_out(kinds_of(word));
    return 0;
  }
  const int code = static_cast<int>(args.get_int("CODE", 0, kMostCode));
  write_out(fmt::format("{}\n{}", word, code_text(code)));
  return 0;
}

}  // namespace

Command explain_command() {
  return {.name = "explain",
          .summary = "print what an exit code or an error kind means, and what to do",
          .positionals = {{.name = "CODE",
                           .doc = "An exit code of ms or srun (75 or 137), or an error kind from "
                                  "run.dir/verdict.json (ckpt.damaged, or ckpt for all of its kinds). Default: all.",
                           .required = false}},
          .run = run_explain};
}

}  // namespace ms::train
