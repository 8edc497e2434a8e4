#include "driver/look.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <set>
#include <sstream>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "base/user_path.h"
#include "driver/command.h"
#include "driver/flight.h"
#include "driver/ras.h"
#include "watch/devices.h"

namespace ms::driver {
namespace {

constexpr double kDiag_s = 20;

// Returns when a process began, by the wall clock, in whole seconds as times of files are compared.
double began_s(const Sysroot& root, int pid) {
  double up_s = 0;
  std::istringstream(root.read("/proc/uptime").value_or("")) >> up_s;
  const double since_boot_s =
      static_cast<double>(process_stat(root, pid).started) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return std::floor(SystemClock().wall_s() - (up_s - since_boot_s));
}

// Copies a file that tells of a rank to DIR/dumps. Where that fails, the rest of the node still tells: `missing` says
// why.
template <class F>
void copy_to_dumps(const std::string& path, const std::string& dir, std::vector<std::string>& missing, F&& copy) {
  try {
    make_directories(dir + "/dumps");
    copy(dir + "/dumps/" + path.substr(path.rfind('/') + 1));
  } catch (const Error& error) { missing.push_back(plain_text("a copy of " + path + ": " + error.message(), 200)); }
}

// Copies the files of the ranks' flight recorders that were written since the ranks began: of a file that is too large
// the beginning, which ms-tracepp takes for the dump that is cut off which it is. Returns how many there are; those
// that cannot be copied are named in `missing`.
int copy_dumps(const LookOptions& options, const std::vector<Task>& tasks, std::vector<std::string>& missing) {
  std::set<std::string> found, cut;
  for (const Task& task : tasks) {
    const std::string prefix = flight_prefix([&, value = std::string()](const char* name) mutable {
      value = variable_of(options.root, task.pid, name).value_or("");
      return value.c_str();
    });
    if (prefix.empty() || task.rank < 0) continue;
    const std::string path = fmt::format("{}{}", prefix, task.rank);
    const std::vector<std::string> files = flight_files(path, began_s(options.root, task.pid));
    if (std::ranges::count(files, path) == 0 || !found.insert(path).second) continue;
    copy_to_dumps(path, options.dir, missing, [&](const std::string& copy) {
      const std::string dump = read_user_file_end(path, options.most_dump_bytes + 1, options.most_dump_bytes + 1);
      const bool is_cut = std::ssize(dump) > options.most_dump_bytes;
      write_file_atomic(copy, std::string_view(dump).substr(0, dump.size() - (is_cut ? 1 : 0)));
      if (is_cut) cut.insert(path);
    });
  }
  if (!cut.empty())
    missing.push_back(fmt::format("flight recorders: all but the first {} of {}",
                                  format_size(static_cast<double>(options.most_dump_bytes)), fmt::join(cut, ", ")));
  return static_cast<int>(found.size());
}

// Copies the newest records that NCCL's Inspector wrote for these tasks, if it is on: a long run has any number.
void copy_inspector(const LookOptions& options, const std::vector<Task>& tasks, std::vector<std::string>& missing) {
  for (const Task& task : tasks) {
    const std::string dir = variable_of(options.root, task.pid, "NCCL_INSPECTOR_DUMP_DIR").value_or("");
    if (task.rank < 0 || dir.empty()) continue;
    const std::string end = fmt::format("-pid{}.log", task.pid);
    for (const std::string& path : flight_files(dir + "/", began_s(options.root, task.pid)))
      if (path.ends_with(end))
        copy_to_dumps(path, options.dir, missing, [&](const std::string& copy) { copy_log(path, copy); });
  }
}

// Runs ms-diag; returns why there is no report of it, empty where there is one.
std::string check_node(const LookOptions& options) {
  std::string why;
  try {
    const SubprocessResult result =
        run_subprocess({options.diag, "run", "--level", "1", "--json"}, {.deadline_s = kDiag_s});
    if (document_in(result.out)) {
      write_file_atomic(fmt::format("{}/check-{}.json", options.dir, options.node), result.out);
    } else {
      why = result.describe();
    }
  } catch (const Error& error) { why = error.message(); }
  return why.empty() ? "" : "health of the node: no report of ms-diag: " + plain_text(why, 200);
}

bool lacks_python(const Sysroot& root, const TaskLook& look) {
  return std::ranges::any_of(look.ranks, [&](const TaskEvidence& rank) {
    return is_python(root, rank.pid) && rank.stack.find("Process ") == std::string::npos;
  });
}

}  // namespace

void write_look(const std::string& dir, int attempt, const std::string& node, const std::string& stacks,
                const std::vector<std::string>& ras, const std::string& diag) {
  const std::string path = fmt::format("{}/attempt-{}.{}", dir, attempt, node);
  write_file_atomic(path + ".stacks", stacks);
  for (std::size_t i = 0; i < ras.size(); ++i)
    write_file_atomic(fmt::format("{}/attempt-{}.ras.{}.{}", dir, attempt, node, i + 1), ras[i]);
  write_file_atomic(path + ".devices", watch::device_state(diag));
}

std::vector<Task> run_of(std::vector<Task> tasks, int own_step, std::optional<int> step) {
  if (own_step >= 0) std::erase_if(tasks, [&](const Task& task) { return task.step == own_step; });
  if (!step) {
    int attempt = -1, newest = -1;
    for (const Task& task : tasks) attempt = std::max(attempt, task.attempt);
    std::erase_if(tasks, [&](const Task& task) { return task.attempt != attempt; });
    for (const Task& task : tasks) newest = std::max(newest, task.step);
    step = newest;
  }
  std::erase_if(tasks, [&](const Task& task) { return task.step != *step; });
  return tasks;
}

std::string to_json(const NodeLook& look) {
  return Json{{"schema", 1}, {"node", look.node}, {"step", look.step}, {"ranks", look.ranks}, {"missing", look.missing}}
             .dump(2) +
         "\n";
}

std::optional<NodeLook> read_node_look(std::string_view text) {
  try {
    const Json json = Json::parse(text, {.max_depth = 4});
    return NodeLook{.node = json.get<std::string>("node"),
                    .step = json.get<int>("step"),
                    .ranks = json.get<int>("ranks"),
                    .missing = json.get<std::vector<std::string>>("missing")};
  } catch (const JsonError&) { return std::nullopt; }
}

void look_into_node(const LookOptions& options) {
  NodeLook look{.node = options.node, .missing = {}};
  std::future<std::string> health = std::async(std::launch::async, check_node, options);
  const std::vector<Task> tasks = run_of(tasks_of(options.root, options.job), options.own_step, options.step);
  if (tasks.empty()) {
    look.missing.push_back("processes: no process of this user belongs to the run");
  } else {
    look.step = tasks.front().step;
    std::future<RasAnswers> ras = std::async(std::launch::async, ask_ras_twice, options.root, tasks);
    const std::vector<FlightFile> asked = dump_flight_recorders(options.root, tasks);
    const TaskLook seen = look_at(options.root, tasks, kLook_s);
    await_dumps(asked, kDumps_s);
    look.ranks = static_cast<int>(seen.ranks.size());
    if (copy_dumps(options, tasks, look.missing) == 0)
      look.missing.push_back(
          asked.empty() ? "flight recorders: TORCH_FR_DUMP_TEMP_FILE names no file that the ranks wrote, and without "
                          "TORCH_NCCL_DEBUG_INFO_PIPE_FILE they cannot be asked for one"
                        : "flight recorders: they were asked, and wrote no file that TORCH_FR_DUMP_TEMP_FILE names");
    copy_inspector(options, tasks, look.missing);
    if (lacks_python(options.root, seen))
      look.missing.push_back(
          "stacks of Python: there is no py-spy, or it may not look (kernel.yama.ptrace_scope); the kernel's are "
          "there");
    const RasAnswers answers = ras.get();
    if (answers.reports.empty())
      look.missing.push_back("NCCL's RAS: " +
                             (answers.problem.empty() ? "no rank listens (NCCL 2.24 or newer does)" : answers.problem));
    write_look(options.dir, 0, options.node, seen.all, answers.reports, options.diag);
  }
  if (std::string why = health.get(); !why.empty()) look.missing.push_back(std::move(why));
  write_file_atomic(fmt::format("{}/look-{}.json", options.dir, options.node), to_json(look));
}

}  // namespace ms::driver
