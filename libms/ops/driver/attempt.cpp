#include "driver/attempt.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <utility>

#include "base/json.h"
#include "base/print.h"
#include "base/text.h"

namespace ms::driver {
namespace {

constexpr std::size_t kMostLaunches = 1 << 14;  // lines on tasks that were not started, beside others
constexpr std::size_t kMostOutputs = 1 << 17;   // a program can print any number in the place of a rank's
constexpr double kOutlives_s = 2;               // reports of what ended may come that late
constexpr std::size_t kSteps = 3;               // printed by any rank: all of them go on

bool has(std::string_view line, std::string_view text) { return line.find(text) != line.npos; }

// "step 17 loss 2.3", "Epoch: 3"
bool is_step(std::string_view line) {
  for (const std::string_view word : {"step", "Step", "iter", "Iter", "epoch", "Epoch"}) {
    const std::size_t at = line.find(word);
    if (at == line.npos) continue;
    const std::string_view rest = line.substr(at + word.size());
    const std::size_t digit = rest.find_first_not_of("ations:=[ ");
    if (digit != rest.npos && rest[digit] >= '0' && rest[digit] <= '9') return true;
  }
  return false;
}

// "98%|#### | 98/100 [00:09<00:00, 9.8it/s]", which may be of loading, too.
bool is_progress(std::string_view line) {
  for (const std::string_view rate : {"it/s]", "it/s,", "s/it]", "s/it,"}) {
    if (has(line, rate)) return true;
  }
  return is_step(line);
}

// Ray's driver names the process and the host whose words it repeats: "(pid=48211, ip=10.0.0.31)".
bool names_other_host(std::string_view line) {
  const std::size_t pid = line.find("pid=");
  if (pid == line.npos) return false;
  const std::size_t end = line.find_first_not_of("0123456789", pid + 4);
  return end != line.npos && end > pid + 4 && line.substr(end).starts_with(", ip=");
}

// "struct.error: unpack requires a buffer", "StopIteration"
bool is_named(std::string_view line) {
  const auto is_part = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; };
  const auto end = static_cast<std::size_t>(std::ranges::find_if_not(line, is_part) - line.begin());
  const std::string_view name = line.substr(0, end);
  const std::size_t dot = name.rfind('.');
  const bool is_class = !name.empty() && std::isupper(static_cast<unsigned char>(name[dot == name.npos ? 0 : dot + 1]));
  if (end == line.size()) return is_class;
  return (is_class || dot != name.npos) && line.substr(end).starts_with(": ");
}

bool is_usage(std::string_view line) { return line.starts_with("usage: ") || line.starts_with("Usage: "); }

// How much a line says that its rank continues.
int signs_in(std::string_view line, int alive) {
  const bool may_be_error = std::ranges::any_of(
      std::array<std::string_view, 8>{"rror", "xception", "Traceback", "FAIL", "ail", "WARN", "xit", "ignal"},
      [&](std::string_view word) { return has(line, word); });
  if (may_be_error || line.empty() || line.starts_with("    ") || line.starts_with("wandb:")) return 0;
  return is_progress(line) ? alive / 2 : std::isalnum(static_cast<unsigned char>(line.front())) != 0;
}

}  // namespace

void Attempt::take_answer(const std::string& node, const Answer& answer) {
  for (const TaskEvidence& task : answer.tasks)
    tasks.push_back({.node = node, .task = task, .step = watcher ? watcher->steps_of(task.rank) : -1});
}

void Attempt::take_output(const std::vector<std::string>& output_lines, int tasks_per_node, double now_s) {
  if (watcher) watcher->output(now_s);
  for (const std::string& text : output_lines) {
    std::string_view line = text;
    slurm::take_label(line);
    write_bytes(fmt::format("{}\n", line));
  }
  take_lines(output_lines, tasks_per_node, now_s);
}

void Attempt::take_lines(const std::vector<std::string>& output_lines, int tasks_per_node, double now_s) {
  for (std::string_view line : output_lines) {
    const int rank = slurm::take_label(line);
    take_line(line, rank, tasks_per_node, now_s);
  }
}

void Attempt::take_line(std::string_view line, int rank, int tasks_per_node, double now_s) {
  ++number_;
  // A task may print what another srun says.
  if (const std::optional<TaskExit> exit = rank < 0 ? slurm::task_exit(line) : std::nullopt) {
    if (!failed_s) failed_s = now_s;
    const bool tells = exit->code != TaskExit::kUnknown;
    if (tells && (!first_exit || exit->code == static_cast<int>(ExitCode::no_progress))) first_exit = exit;
  }
  int worker = slurm::take_worker(line);
  if (outputs_.size() >= kMostOutputs && !outputs_.contains({rank, worker})) rank = worker = -1;
  Output &task = outputs_[{rank, -1}], &own = outputs_[{rank, worker}];
  task.repeats = task.repeats || names_other_host(line);
  said_usage = said_usage || is_usage(line);
  const KnownLine* known = known_line(line);
  // The line that ends a traceback is the exception, whatever the name of its class.
  const bool ends_traceback = own.in_traceback && is_named(line);
  const bool is_inside = line.empty() || line.front() == ' ' || line.starts_with("File \"");
  own.in_traceback = has(line, "Traceback (most recent call last):") || (own.in_traceback && is_inside);
  if (known == nullptr && ends_traceback && !own.in_traceback) known = slurm::any_exception();
  if (known == nullptr) {
    if (is_step(line) && signs_in(line, kAlive) > 0) {
      ++progress_;
      progress_s_ = now_s;
    }
    task.signs += signs_in(line, kAlive);
    own.chained = own.chained || has(line, "During handling of the above exception") ||
                  has(line, "was the direct cause of the following exception") || has(line, "Exception ignored in");
    return;
  }
  if (task.repeats) known = slurm::repeated(known);
  // A launcher says so of an error that was printed before; else it is the program's own command that failed.
  if (known->cause == slurm::kChildFailed && !task.failed && slurm::is_python_exception(line))
    known = slurm::any_exception();
  if (known->says != Says::effect && known->says != Says::exception) task.last_cause = {number_, known};
  task.failed = task.failed || known->says != Says::effect;
  // A rank ends of one exception: it had caught those before. Who waits for a peer may end of that later.
  const bool ends = (ends_traceback || slurm::is_python_exception(line)) && known->says != Says::trouble &&
                    known->says != Says::effect;
  if (ends && !std::exchange(own.chained, false)) ++own.exceptions;
  const auto index = rank < 0 || tasks_per_node == 0 ? nodes.size() : static_cast<std::size_t>(rank / tasks_per_node);
  const std::string node = index < nodes.size() ? nodes[index] : "";
  // srun names each task that it could not start in a line of its own.
  const bool counts_all = known->cause == slurm::kLaunchFailed && rank < 0 && said_.size() < kMostLaunches;
  const auto [said, is_new] =
      said_.try_emplace({rank, counts_all ? -2 - static_cast<int>(said_.size()) : worker, known});
  if (!is_new && !is_outlived(said->second)) return;
  said->second = {.line = {.known = known,
                           .node = node,
                           .rank = worker >= 0 ? worker : rank,
                           .text = plain_text(line, 300),
                           .at_s = now_s},
                  .number = number_,
                  .signs = task.signs,
                  .progress = progress_,
                  .exceptions = ends ? own.exceptions : std::numeric_limits<int>::max(),
                  .of_task = &task,
                  .of_worker = &own};
}

bool Attempt::is_outlived(const Said& said) const {
  // No program ends of its text or of what it misses, and then of something else.
  const auto& [number, known] = said.of_task->last_cause;
  const bool is_set_up = said.line.known->says == Says::hint && said.line.known->blame == Blame::user;
  const bool is_other = number > said.number && known->cause != said.line.known->cause;
  if ((said.line.known->says == Says::mistake || is_set_up) && is_other) return true;
  // Errors after that of a broken device are of how the program ends.
  const bool is_caught = said.of_worker->exceptions > said.exceptions && said.line.known->says != Says::proof;
  return said.of_task->signs - said.signs >= kAlive || is_caught ||
         (said.line.known->says != Says::proof && progress_ - said.progress >= kSteps &&
          progress_s_ > said.line.at_s + kOutlives_s) ||
         (watcher && watcher->steps() >= 0 && watcher->last_progress_s() > said.line.at_s + kOutlives_s);
}

std::vector<SaidLine> Attempt::lines() const {
  std::vector<Said> sorted;
  for (const auto& [key, said] : said_) sorted.push_back(said);
  std::ranges::sort(sorted, {}, &Said::number);
  std::vector<SaidLine> lines;
  for (Said& said : sorted) {
    said.line.outlived = is_outlived(said);
    lines.push_back(std::move(said.line));
  }
  return lines;
}

std::optional<HangVerdict> Attempt::with_node(std::optional<HangVerdict> verdict) const {
  if (!verdict) return verdict;
  const auto node_of = [&]() -> std::string {
    for (const std::string& node : nodes) {
      if (!verdict->host.empty() && node == verdict->host.substr(0, verdict->host.find('.'))) return node;
    }
    if (verdict->rank < 0) return "";
    for (const NodeTask& task : tasks) {
      if (task.task.rank == verdict->rank) return task.node;
    }
    const auto known = watcher->ranks().find(verdict->rank);
    return known == watcher->ranks().end() ? "" : known->second.node;
  };
  verdict->node = node_of();
  return verdict;
}

bool Attempt::printed_steps() const { return progress_ >= kSteps; }

std::string evidence_json(const AttemptEvidence& evidence, double alarm_s, double offset_s) {
  Json tasks = Json::array(), lines = Json::array();
  for (const NodeTask& t : evidence.tasks) {
    tasks.push_back({{"node", t.node},
                     {"rank", t.task.rank},
                     {"step", t.step},
                     {"pid", t.task.pid},
                     {"state", std::string(1, t.task.state)},
                     {"cpu", t.task.cpu},
                     {"waits_in", t.task.waits_in},
                     {"stack", t.task.stack}});
  }
  for (const SaidLine& line : evidence.lines) {
    lines.push_back({{"at_s", line.at_s + offset_s},
                     {"node", line.node},
                     {"rank", line.rank},
                     {"cause", line.known->cause},
                     {"outlived", line.outlived},
                     {"text", line.text}});
  }
  Json json{{"schema", 1}, {"alarm", evidence.alarm ? evidence.alarm->why : ""}};
  if (evidence.alarm) json["alarm_s"] = alarm_s + offset_s;
  json["lost"] = evidence.lost;
  json["died_on"] = evidence.died_on;
  json["tasks"] = std::move(tasks);
  json["lines"] = std::move(lines);
  return json.dump(2) + "\n";
}

}  // namespace ms::driver
