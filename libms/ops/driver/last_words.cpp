#include "driver/last_words.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <limits>
#include <set>

#include "base/number.h"
#include "base/text.h"

namespace ms::driver {
namespace {

constexpr std::size_t kMostLaunches = 1 << 14;  // lines on tasks that were not started, beside others
constexpr std::size_t kMostOutputs = 1 << 17;   // a program can print any number in the place of a rank's
constexpr double kOutlives_s = 2;               // reports of what ended may come that late
constexpr std::string_view kMpiAbort = "mpi_abort";
constexpr std::string_view kTorchrunSays = "torchrun: rank ";
constexpr std::size_t kSteps = 3;  // printed by any rank: all of them go on

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

// Ray's driver names the process and the host whose words it repeats: "(pid=48211, ip=10.0.0.31)". Others say that they
// repeat what another process said.
bool names_other_host(std::string_view line) {
  for (const std::string_view repeats : {"Error Snippet]", "RemoteTraceback", "On WorkerInfo("}) {
    if (has(line, repeats)) return true;
  }
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

// A program aborts by itself.
bool is_from_outside(int code) { return code > kSignal && code != kSignal + SIGABRT; }

// How much a line says that its rank continues.
int signs_in(std::string_view line, int alive) {
  const bool may_be_error = std::ranges::any_of(
      std::array<std::string_view, 8>{"rror", "xception", "Traceback", "FAIL", "ail", "WARN", "xit", "ignal"},
      [&](std::string_view word) { return has(line, word); });
  if (may_be_error || line.empty() || line.starts_with("    ") || line.starts_with("wandb:")) return 0;
  return is_progress(line) ? alive / 2 : std::isalnum(static_cast<unsigned char>(line.front())) != 0;
}

}  // namespace

void LastWords::note_exit(std::string_view line, double now_s) {
  const std::optional<TaskExit> exit = slurm::task_exit(line);
  if (!exit) return;
  if (!failed_s_) failed_s_ = now_s;
  const bool tells = exit->code != TaskExit::kUnknown;
  if (tells && (!first_exit_ || exit->code == static_cast<int>(ExitCode::no_progress))) first_exit_ = exit;
}

// "Root Cause (first observed failure):", then lines such as "  rank      : 12 (local_rank: 4)" and
// "  exitcode  : -11 (pid: 4711)".
void LastWords::read_summary(std::string_view line, const std::string& node, Output& task) {
  if (has(line, "Root Cause (first observed failure)")) task.summary.emplace();
  if (!task.summary) return;
  const std::size_t colon = line.find(':');
  const std::string_view key = trim(line.substr(0, colon));
  const std::string_view value = colon == line.npos ? "" : trim(line.substr(colon + 1));
  if (key == "time") task.summary->time = plain_text(value, 40);
  if (key == "rank") task.summary->rank = leading_number<int>(value).value_or(-1);
  if (key != "exitcode" && !line.starts_with("====")) return;
  const std::optional<FirstFailure> read = std::exchange(task.summary, std::nullopt);
  const std::optional<int> code = key == "exitcode" ? leading_number<int>(value) : std::nullopt;
  // torchrun itself sends SIGTERM to the workers that are left.
  if (code && *code >= -kMostSignals && *code != 0 && *code != -SIGTERM && read->rank >= 0)
    note_worker(*read, *code < 0 ? kSignal - *code : *code, node, task);
}

void LastWords::note_worker(const FirstFailure& worker, int code, const std::string& node, const Output& task) {
  summarized_.insert(node);
  // Within a second the others end of an error, as their peer is gone, and not of a signal.
  std::tuple order(code != static_cast<int>(ExitCode::no_progress), worker.time, code <= kSignal);
  if (!first_worker_ || order < worker_order_) {
    first_worker_ = {.node = node, .code = code, .rank = worker.rank};
    worker_order_ = std::move(order);
  }
  // torchrun's own exception, which ends its output, tells nothing more.
  for (auto& [key, said] : said_) {
    if (said.of_task != &task || !has(said.line.text, "ChildFailedError")) continue;
    said.line.rank = worker.rank;
    said.line.text = fmt::format("{}{} failed first, with {} {}", kTorchrunSays, worker.rank,
                                 code > kSignal ? "signal" : "exit code", code > kSignal ? code - kSignal : code);
  }
}

std::optional<TaskExit> LastWords::first_exit() const {
  const bool is_told = first_worker_ && (!first_exit_ || summarized_.contains(first_exit_->node));
  const bool asks = first_exit_ && first_exit_->code == static_cast<int>(ExitCode::no_progress);
  return is_told && !asks ? first_worker_ : first_exit_;
}

void LastWords::take(std::string_view line, int rank, const std::string& node, double now_s,
                     std::optional<double> trained_s) {
  ++number_;
  if (rank < 0) note_exit(line, now_s);  // a task may print what another srun says
  int worker = slurm::take_worker(line);
  if (outputs_.size() >= kMostOutputs && !outputs_.contains({rank, worker})) rank = worker = -1;
  Output &task = outputs_[{rank, -1}], &own = outputs_[{rank, worker}];
  task.repeats = task.repeats || names_other_host(line);
  said_usage_ = said_usage_ || is_usage(line);
  read_summary(line, node, task);
  if (trim(line).starts_with("traceback : Signal ")) return;  // torchrun's, of any of its workers
  // PyTorch first says in general words which worker or rank raised an exception, then prints that one.
  if (line.starts_with("Original Traceback (most") || has(line, "Traceback (most recent call last): (RANK ")) {
    std::erase_if(said_, [&](const auto& entry) {
      const Said& said = entry.second;
      return said.of_worker == &own && said.exceptions == own.exceptions && said.line.known->says == Says::exception;
    });
  }
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
  if (known->cause == "ib_completion" || known->cause == "ib_retry") own.last_link = number_;
  const bool of_launcher =
      known->cause == slurm::kChildFailed || known->cause == slurm::kTerminated || known->cause == kMpiAbort;
  if (!of_launcher && !own.chained) task.last_end = {number_, known};
  task.failed = task.failed || known->says != Says::effect;
  // A rank ends of one exception: it had caught those before. Who waits for a peer may end of that later.
  const bool ends = (ends_traceback || slurm::is_python_exception(line)) && known->says != Says::trouble &&
                    known->says != Says::effect;
  if (ends && !std::exchange(own.chained, false)) ++own.exceptions;
  // srun names each task that it could not start in a line of its own.
  const bool counts_all = known->cause == slurm::kLaunchFailed && rank < 0 && said_.size() < kMostLaunches;
  const auto [said, is_new] =
      said_.try_emplace({rank, counts_all ? -2 - static_cast<int>(said_.size()) : worker, known});
  if (!is_new && !is_outlived(said->second, trained_s)) return;
  said->second = {.line = {.known = known,
                           .node = node,
                           .rank = worker >= 0 ? worker : rank,
                           .text = plain_text(line, 300),
                           .at_s = now_s},
                  .number = number_,
                  .signs = task.signs,
                  .progress = progress_,
                  .ends_traceback = ends_traceback,
                  .exceptions = ends ? own.exceptions : std::numeric_limits<int>::max(),
                  .of_task = &task,
                  .of_worker = &own};
}

bool LastWords::is_outlived(const Said& said, std::optional<double> trained_s) const {
  // No program ends of its text or of what it misses, and then of something else.
  const auto is_other = [&](const std::pair<std::size_t, const KnownLine*>& later) {
    return later.first > said.number && later.second->cause != said.line.known->cause;
  };
  if (said.line.known->says == Says::mistake && is_other(said.of_task->last_cause)) return true;
  if (said.line.known->is_set_up() && is_other(said.ends_traceback ? said.of_task->last_cause : said.of_task->last_end))
    return true;
  // A rank whose GPU had no memory, and that sends later, had caught that.
  if (said.line.known->cause == "gpu_memory" && said.of_worker->last_link > said.number) return true;
  // Errors after that of a broken device are of how the program ends.
  const bool is_caught = said.of_worker->exceptions > said.exceptions && said.line.known->says != Says::proof;
  return said.of_task->signs - said.signs >= kAlive || is_caught ||
         (said.line.known->says != Says::proof && progress_ - said.progress >= kSteps &&
          progress_s_ > said.line.at_s + kOutlives_s) ||
         (trained_s && *trained_s > said.line.at_s + kOutlives_s);
}

std::vector<SaidLine> LastWords::lines(std::optional<double> trained_s) const {
  std::vector<Said> sorted;
  for (const auto& [key, said] : said_) sorted.push_back(said);
  std::ranges::sort(sorted, {}, &Said::number);
  // If one rank did without it, the others did not end of it.
  std::set<std::pair<const KnownLine*, std::string>> missed;
  for (Said& said : sorted) {
    // Only the torchrun of the first worker tells a cause, unless a signal from outside ended that worker.
    const bool of_torchrun = said.line.text.starts_with(kTorchrunSays) || has(said.line.text, "ChildFailedError");
    if (of_torchrun && first_worker_ && (said.line.node != first_worker_->node || is_from_outside(first_worker_->code)))
      said.line.known = known_line("ChildFailedError: ");
    said.line.outlived = is_outlived(said, trained_s);
    if (said.line.outlived && said.line.known->is_set_up() && !said.ends_traceback)
      missed.emplace(said.line.known, said.line.text);
  }
  std::vector<SaidLine> lines;
  for (Said& said : sorted) {
    said.line.outlived =
        said.line.outlived || (!said.ends_traceback && missed.contains({said.line.known, said.line.text}));
    lines.push_back(std::move(said.line));
  }
  return lines;
}

bool LastWords::printed_steps() const { return progress_ >= kSteps; }

}  // namespace ms::driver
