#include "driver/tasks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <thread>
#include <tuple>

#include "base/clock.h"
#include "base/error.h"
#include "base/handle.h"
#include "base/number.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "driver/flight.h"

namespace ms::driver {
namespace {

constexpr std::size_t kMostStack_bytes = 16384, kMostEnvironment_bytes = std::size_t{1} << 20;
constexpr std::size_t kMostLook_bytes = std::size_t{4} << 20;
constexpr double kOthers_s = 5;  // in which processes that are no ranks may be looked at with py-spy, too

std::optional<std::string> text_of(std::string_view environment, std::string_view name) {
  while (!environment.empty()) {
    const std::size_t end = std::min(environment.find('\0'), environment.size());
    const std::string_view entry = environment.substr(0, end);
    if (entry.starts_with(name) && entry.substr(name.size()).starts_with('=')) {
      return std::string(entry.substr(name.size() + 1));
    }
    environment.remove_prefix(std::min(end + 1, environment.size()));
  }
  return std::nullopt;
}

std::optional<int> number_of(std::string_view environment, std::string_view name) {
  const std::optional<std::string> text = text_of(environment, name);
  return text ? whole_number<int>(*text) : std::nullopt;
}

bool is_own(const Sysroot& root, const std::string& directory) {
  struct stat status {};
  return ::stat(root.path(directory).c_str(), &status) == 0 && status.st_uid == geteuid();
}

std::string stack_of(const Sysroot& root, int pid, bool may_wait) {
  if (may_wait && root.is_real() && is_python(root, pid)) {
    try {
      const SubprocessResult result = run_subprocess({"py-spy", "dump", "--nonblocking", "--pid", std::to_string(pid)},
                                                     {.deadline_s = 5, .max_output_bytes = kMostStack_bytes});
      if (result.ok()) return result.out;
    } catch (const Error&) {  // there is no py-spy
    }
  }
  // The kernel's stack is shown to root only.
  return watch::kernel_stacks(root, pid) + root.read(fmt::format("/proc/{}/stack", pid)).value_or("");
}

std::string environment_of(const Sysroot& root, int pid) {
  return root.read(fmt::format("/proc/{}/environ", pid), kMostEnvironment_bytes).value_or("");
}

std::optional<std::pair<double, std::int64_t>> time_and_size(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return std::pair(static_cast<double>(status.st_mtim.tv_sec) + 1e-9 * static_cast<double>(status.st_mtim.tv_nsec),
                   std::int64_t{status.st_size});
}

std::string command_of(const Sysroot& root, int pid) {
  std::string words = root.read(fmt::format("/proc/{}/cmdline", pid)).value_or("");
  std::ranges::replace(words, '\0', ' ');
  return plain_text(words, 300);
}

}  // namespace

std::optional<Task> task_of(const Sysroot& root, int pid) {
  const std::string directory = fmt::format("/proc/{}", pid);
  if (!is_own(root, directory)) return std::nullopt;
  const std::string environment = environment_of(root, pid);
  const std::optional<int> worker = text_of(environment, "LOCAL_RANK") ? number_of(environment, "RANK") : std::nullopt;
  return Task{.pid = pid,
              .job = number_of(environment, "SLURM_JOB_ID").value_or(-1),
              .step = number_of(environment, "SLURM_STEP_ID").value_or(-1),
              .attempt = number_of(environment, "MS_ATTEMPT").value_or(-1),
              .rank = worker.value_or(number_of(environment, "SLURM_PROCID").value_or(-1)),
              .worker = worker.has_value()};
}

bool is_python(const Sysroot& root, int pid) {
  return root.link_name(fmt::format("/proc/{}/exe", pid)).starts_with("python");
}

std::optional<std::string> variable_of(const Sysroot& root, int pid, std::string_view name) {
  return text_of(environment_of(root, pid), name);
}

std::vector<Task> tasks_of(const Sysroot& root, int job) {
  std::vector<Task> tasks;
  for (const std::string& name : root.list("/proc")) {
    const std::optional<int> pid = whole_number<int>(name);
    if (!pid || *pid == getpid()) continue;
    // Slurm's own process beside them sees its tasks end. It is ours where root runs the job.
    if (root.read("/proc/" + name + "/comm") == "slurmstepd") continue;
    const std::optional<Task> task = task_of(root, *pid);
    if (task && task->job == job) tasks.push_back(*task);
  }
  return tasks;
}

std::vector<Task> tasks_of(const Sysroot& root, int job, int attempt) {
  std::vector<Task> tasks = tasks_of(root, job);
  std::erase_if(tasks, [&](const Task& task) { return task.attempt != attempt; });
  return tasks;
}

int kill_tasks(const Sysroot& root, int job, int attempt) {
  int count = 0;
  // Until a look finds none: one may have been about to start another.
  for (int look = 0; look < 5; ++look) {
    int alive = 0;
    for (const Task& task : tasks_of(root, job, attempt)) {
      if (process_stat(root, task.pid).state != 'Z' && kill(task.pid, SIGKILL) == 0) ++alive;
    }
    if (alive == 0) break;
    count = std::max(count, alive);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return count;
}

double processors_of(const ThreadTimes& before, const ThreadTimes& after, double seconds) {
  constexpr double kLeastSeen = 0.05;  // of the time
  double processors = 0;
  for (const auto& [thread, now] : after) {
    const auto found = before.find(thread);
    const ThreadTime then = found == before.end() ? ThreadTime{} : found->second;
    const double ran_s = 1e-9 * static_cast<double>(now.ran_ns - then.ran_ns);
    const double seen_s = seconds - 1e-9 * static_cast<double>(now.waited_ns - then.waited_ns);
    if (seen_s < kLeastSeen * seconds) return -1;
    processors += std::min(1.0, ran_s / seen_s);
  }
  return processors;
}

TaskLook look_at(const Sysroot& root, std::vector<Task> tasks, double seconds) {
  // The first process of a rank is the rank; those behind it are its children. A launcher is none beside its workers.
  const bool launched = std::ranges::any_of(tasks, &Task::worker);
  const auto order = [&](const Task& task) { return std::tuple(launched && !task.worker, task.rank, task.pid); };
  std::ranges::sort(tasks, {}, order);
  struct Before {
    char state;
    ThreadTimes times;
    double at_s;
  };
  std::vector<Before> before;
  for (const Task& task : tasks)
    before.push_back({process_stat(root, task.pid).state, thread_times(root, task.pid), monotonic_s()});
  const double start_s = monotonic_s();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  TaskLook look;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    const bool is_rank = task.worker == launched && (look.ranks.empty() || look.ranks.back().rank != task.rank);
    char state = process_stat(root, task.pid).state;
    if (state == 'D' && before[i].state != 'D') state = before[i].state;  // a page that came from a disk
    TaskEvidence evidence{
        .rank = task.rank,
        .pid = task.pid,
        .state = state,
        .cpu = processors_of(before[i].times, thread_times(root, task.pid), monotonic_s() - before[i].at_s),
        .waits_in = root.read(fmt::format("/proc/{}/wchan", task.pid)).value_or(""),
        .stack = stack_of(root, task.pid, is_rank || monotonic_s() - start_s < kOthers_s)};
    if (look.all.size() < kMostLook_bytes) {
      look.all += fmt::format("process {}, {} {}, state {}, {:.2f} processors, waits in {}: {}\n{}\n", task.pid,
                              is_rank ? "rank" : "of rank", task.rank, evidence.state, evidence.cpu, evidence.waits_in,
                              command_of(root, task.pid), evidence.stack);
    }
    if (is_rank) look.ranks.push_back(std::move(evidence));
  }
  return look;
}

std::vector<FlightFile> dump_flight_recorders(const Sysroot& root, const std::vector<Task>& tasks) {
  std::vector<FlightFile> files;
  for (const Task& task : tasks) {
    const std::string environment = environment_of(root, task.pid);
    const std::optional<std::string> prefix = text_of(environment, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE");
    const bool answers = process_stat(root, task.pid).state != 'T';  // one that a signal has stopped does not
    if (!prefix || prefix->empty() || task.rank < 0 || !answers) continue;
    std::string named;
    const std::string file = flight_prefix([&](const char* name) {
      named = text_of(environment, name).value_or("");
      return named.c_str();
    });
    FlightFile dump{.path = file.empty() ? "" : fmt::format("{}{}", file, task.rank), .before = {}};
    if (!dump.path.empty()) dump.before = time_and_size(dump.path);
    const UniqueFd pipe(
        open(root.path(fmt::format("{}{}.pipe", *prefix, task.rank)).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    struct stat status {};
    if (pipe && fstat(pipe.get(), &status) == 0 && S_ISFIFO(status.st_mode) && write(pipe.get(), "1", 1) == 1) {
      files.push_back(std::move(dump));
    }
  }
  return files;
}

void await_dumps(const std::vector<FlightFile>& files, double seconds) {
  const auto is_written = [](const FlightFile& file) {
    const auto now = file.path.empty() ? file.before : time_and_size(file.path);
    return file.path.empty() || (now && now->second > 0 && now != file.before);
  };
  const double until_s = monotonic_s() + seconds;
  while (!std::ranges::all_of(files, is_written) && monotonic_s() < until_s) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace ms::driver
