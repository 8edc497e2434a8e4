#include "slurm/known_lines.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/number.h"
#include "slurm/hostlist.h"

namespace ms::slurm {
namespace {

const KnownLine* proof_of(const KnownLine& known) {
  const auto found = std::ranges::find_if(
      known_lines(), [&](const KnownLine& row) { return row.says == Says::proof && row.text == known.text; });
  return found == known_lines().end() ? nullptr : &*found;
}
bool repeats_proof(const KnownLine& known) { return known.says == Says::hint && proof_of(known) != nullptr; }

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool is_source(std::string_view line) {
  return line.starts_with("    ") || line.starts_with("  File \"") || line.starts_with("+ ");
}

// "[W1120 12:00:00.123 socket.cpp:697] [c10d] ...", as C++ libraries log, and what others print of what they survive.
bool is_warning(std::string_view line) {
  const bool is_glog = line.starts_with("[W") && line.size() > 2 && !std::isalpha(static_cast<unsigned char>(line[2]));
  constexpr std::array kSurvived = std::to_array<std::string_view>(
      {"WARN", "wandb: ", "sudo: ", "fusermount", "shell-init: ", "job-working-directory: ", "Matplotlib created"});
  return is_glog || std::ranges::any_of(kSurvived, [&](std::string_view start) { return line.starts_with(start); }) ||
         line.find(": warning: ") != line.npos || line.find("UserWarning: ") != line.npos ||
         line.find("gds_ds12_lock") != line.npos;  // PMIx's store, which has another way
}

// "Connection refused, retrying (3/34)", "Retrying in 5 s": whoever prints it continues. A last line says "after
// retrying". httpx logs every reply, also one of a request that is repeated.
bool is_retried(std::string_view line) {
  if (line.find("HTTP Request: ") != line.npos || line.find("will retry") != line.npos) return true;
  constexpr std::array kEnded =
      std::to_array<std::string_view>({"after ", "not ", "without ", "stopped ", "up ", "of "});
  const std::size_t at = line.find("etrying");
  if (at == line.npos || at == 0) return false;
  return std::ranges::none_of(kEnded, [&](std::string_view word) { return line.substr(0, at - 1).ends_with(word); });
}

// Python draws a line beside the exceptions of a group.
void take_group(std::string_view& line) {
  const std::size_t at = line.find_first_not_of(' ');
  if (at == line.npos || line[at] != '|') return;
  line.remove_prefix(std::min(at + 2, line.size()));
}

// A slurmd that may run several times on a host (--enable-multiple-slurmd) names its node: "slurmstepd-node02: ".
bool is_of_slurm(std::string_view line) {
  return line.starts_with("srun: ") || line.starts_with("slurmstepd: ") || line.starts_with("slurmstepd-");
}

// How sure it is that whoever writes the line speaks of itself, from what stands before the row's text: an error's own
// line has nothing but names of an exception and of what raised it there. Lists, patterns and names of files hold the
// same words.
enum class Speaks { of_others, of_somebody, of_itself };
Speaks speaker(std::string_view before) {
  constexpr std::array kSpeakers = std::to_array<std::string_view>(
      {"CUDA error: ", "CUDA driver error: ", "CUDA Error: ", "HIP error: ", "cuda runtime error (39) : ",
       "ERROR: LoadError: ", "error( cudaErrorECCUncorrectable): ", "cudaDeviceSynchronize() ", "returned error 214 (",
       "what():  ", "NVML: ", "Failed: Cuda error '", "CUDA failure: ", "CUDA runtime error: ",
       "cudaErrorECCUncorrectable: ", "results in ", "NVMLError_GpuIsLost: ", "INTERNAL: "});
  if (before.find_first_not_of(' ') == before.npos) return Speaks::of_itself;
  if (before.starts_with("Unable to determine the device handle")) return Speaks::of_itself;
  if (before.find("NCCL WARN ") != before.npos && before.find("uda failure") != before.npos) return Speaks::of_itself;
  std::string_view name = before;
  const auto speaks = [&](std::string_view words) { return name.ends_with(words); };
  for (auto words = std::ranges::find_if(kSpeakers, speaks); words != kSpeakers.end();
       words = std::ranges::find_if(kSpeakers, speaks))
    name.remove_suffix(words->size());
  // Behind a second colon an exception repeats what others said.
  const bool is_exception = name.ends_with(": ") && name.find(": ") == name.size() - 2 &&
                            is_python_exception(name.substr(0, name.size() - 2));
  if (is_exception || name.find_first_not_of(' ') == name.npos) return Speaks::of_itself;
  return name.size() == before.size() ? Speaks::of_others : Speaks::of_somebody;
}

bool matches(const KnownLine& known, std::string_view line, bool is_exception) {
  const std::size_t at = line.find(known.text);
  if (at == line.npos || (!is_exception && known.text.ends_with("Error:"))) return false;
  if (known.source == kSlurmSays) return is_of_slurm(line);
  if (known.says != Says::proof && !repeats_proof(known)) return true;
  return speaker(line.substr(0, at)) >= (known.says == Says::proof ? Speaks::of_itself : Speaks::of_somebody);
}

}  // namespace

const KnownLine* known_line(std::string_view line) {
  take_worker(line);
  take_group(line);
  if (is_source(line)) return nullptr;
  const bool warns = is_warning(line) || is_retried(line);
  // A program that logs an exception which it caught puts other words before the name of the class.
  const bool is_exception = is_python_exception(line);
  const auto rows = known_lines().first(known_lines().size() - 1);
  const auto found = std::ranges::find_if(rows, [&](const KnownLine& known) {
    return matches(known, line, is_exception) && (!warns || repeats_proof(known));
  });
  if (found != rows.end()) return &*found;
  return is_exception && !warns ? &known_lines().back() : nullptr;
}

bool is_proof(std::string_view cause) {
  return std::ranges::any_of(known_lines(),
                             [&](const KnownLine& row) { return row.says == Says::proof && row.cause == cause; });
}

const KnownLine* any_exception() { return &known_lines().back(); }

const KnownLine* repeated(const KnownLine* known) {
  const auto found = std::ranges::find_if(
      known_lines(), [&](const KnownLine& row) { return row.says == Says::hint && row.text == known->text; });
  return known->says != Says::proof || found == known_lines().end() ? known : &*found;
}

bool is_python_exception(std::string_view line) {
  const std::string_view name =
      line.substr(0, line.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."));
  if (line.size() > name.size() && !line.substr(name.size()).starts_with(": ")) return false;
  return std::ranges::any_of(std::array<std::string_view, 4>{"Error", "Exception", "Interrupt", "Exit"},
                             [&](std::string_view end) { return name.ends_with(end); });
}

std::string without_numbers(std::string_view line) {
  std::string text;
  for (std::size_t at = 0; at < line.size();) {
    const auto end = static_cast<std::size_t>(std::find_if_not(line.begin() + at, line.end(), is_word) - line.begin());
    const std::string_view word = line.substr(at, std::max<std::size_t>(end - at, 1));
    text += std::ranges::any_of(word, [](char c) { return c >= '0' && c <= '9'; }) ? "#" : word;
    at += word.size();
  }
  return text;
}

std::optional<TaskExit> task_exit(std::string_view line) {
  constexpr std::string_view kStart = "srun: error: ", kTask = ": task", kCode = "Exited with exit code ";
  if (!line.starts_with(kStart)) return std::nullopt;
  line.remove_prefix(kStart.size());
  const std::size_t task = line.find(kTask);
  if (task == line.npos || line.substr(0, task).find(' ') != line.npos) return std::nullopt;
  TaskExit exit{.node = std::string(line.substr(0, task)), .code = TaskExit::kUnknown};
  if (!is_host_name(exit.node)) exit.node.clear();  // several nodes at once
  if (const std::size_t code = line.find(kCode); code != line.npos) {
    const auto number = leading_number<int>(line.substr(code + kCode.size()));
    if (!number) return std::nullopt;
    exit.code = *number;
    return exit;
  }
  // As strsignal() names them; "Terminated" and "Killed" may be srun's own doing.
  for (const auto& [name, signal] :
       {std::pair{": Segmentation fault", 11}, std::pair{": Aborted", 6}, std::pair{": Bus error", 7},
        std::pair{": Illegal instruction", 4}, std::pair{": Floating point exception", 8},
        std::pair{": Out Of Memory", 9}, std::pair{": Killed", 9}}) {
    if (line.find(name) == line.npos) continue;
    exit.code = 128 + signal;
    break;
  }
  return exit;
}

int take_worker(std::string_view& line) {
  int worker = -1;
  // "(EngineCore_0 pid=4711) ValueError: ...": a process of the same host.
  const std::size_t pid = line.find(" pid="), closed = line.find(") ");
  if (line.starts_with('(') && closed != line.npos && pid < closed &&
      line.substr(0, closed).find_first_not_of("0123456789", pid + 5) == line.npos)
    line.remove_prefix(closed + 2);
  for (const std::string_view start : {"[rank", "[default"}) {
    const std::size_t end = line.find("]:");
    if (!line.starts_with(start) || end == line.npos) continue;
    if (start == "[rank") worker = leading_number<int>(line.substr(start.size(), end - start.size())).value_or(worker);
    line.remove_prefix(std::min(end + (line.substr(end).starts_with("]: ") ? 3 : 2), line.size()));
  }
  return worker;
}

int take_label(std::string_view& line) {
  std::string_view rest = line.substr(std::min(line.find_first_not_of(' '), line.size()));
  const int task = take_number<int>(rest).value_or(-1);
  if (task < 0 || !rest.starts_with(": ")) return -1;
  line = rest.substr(2);
  return task;
}

}  // namespace ms::slurm
