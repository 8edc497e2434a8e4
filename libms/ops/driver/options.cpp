#include "driver/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "net/agents/own_launch.h"
#include "slurm/hostlist.h"
#include "slurm/topology.h"

namespace ms::driver {
namespace {

int number_of(const char* name) {
  const std::optional<std::int64_t> number = [&]() -> std::optional<std::int64_t> {
    char* end = nullptr;
    const char* text = environment(name);
    const long value = std::strtol(text, &end, 10);
    if (end == text || *end != '\0') return std::nullopt;
    return value;
  }();
  return static_cast<int>(number.value_or(0));
}

// The command with what the driver adds to it: the run's directory, where it is ms-train's and none is named.
std::vector<std::string> completed(std::vector<std::string> command, const std::string& run_dir) {
  if (!is_ms_train(command)) return command;
  for (const std::string& word : command) {
    if (word.starts_with("run.dir=") || word.starts_with("--set=run.dir=")) {
      throw user_error("driver.run_dir", "ms-driver sets run.dir to its --run-dir", "leave out --set run.dir");
    }
  }
  command.insert(command.end(), {"--set", "run.dir=" + run_dir});
  return command;
}

// The segments that --segment asks for, or the job does.
Segments segments_of(const Args& args, const DriverOptions& options) {
  const bool is_given = args.has("segment");
  const auto nodes = static_cast<std::size_t>(is_given ? args.get_int("segment", 0, 65536)
                                                       : std::max(number_of("SLURM_JOB_SEGMENT_SIZE"), 0));
  if (nodes == 0) return {};
  const std::size_t working = options.nodes.size() - options.spares;
  // Whoever asks for nothing new is not kept from starting.
  const auto refuse = [&](const std::string& why, const std::string& hint) -> Segments {
    if (is_given) throw user_error("driver.segment", fmt::format("--segment {}: {}", nodes, why), hint);
    log::warn("driver", "the job's --segment {} is not kept by attempts: {}", nodes, why);
    return {};
  };
  if (working % nodes != 0) {
    return refuse(fmt::format("the {} that are no spares are not whole segments", plural(working, "node")),
                  "give a number of --spares that leaves whole segments, or --segment=0 to take any nodes");
  }
  const slurm::ToldTopology told = slurm::ask_topology(environment);
  if (told.text.empty()) return refuse("the blocks are not known: " + told.why_not, "--segment=0 takes any nodes");
  try {
    return {.nodes = nodes, .block_of = slurm::parse_topology(told.text, "scontrol show topology").leaf_of};
  } catch (const Error& error) { return refuse(error.message(), "--segment=0 takes any nodes"); }
}

}  // namespace

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string run_dir_of(const Args& args, const char* name) {
  const std::string given = args.get(name);
  if (!given.empty()) return given;
  if (*environment("SLURM_JOB_ID") == '\0') return ".";
  return fmt::format("runs/{}", environment("SLURM_JOB_ID"));
}

DriverOptions options_of(const Args& args) {
  DriverOptions options;
  options.job = number_of("SLURM_JOB_ID");
  if (options.job <= 0) {
    throw user_error("driver.job", "this is not run inside a Slurm job",
                     "use it in a job script (sbatch --no-kill), or try: salloc --no-kill -N 2");
  }
  const int array = number_of("SLURM_ARRAY_JOB_ID");
  options.shown_job =
      array > 0 ? fmt::format("{}_{}", array, number_of("SLURM_ARRAY_TASK_ID")) : std::to_string(options.job);
  options.restarts = number_of("SLURM_RESTART_COUNT");
  options.partition = environment("SLURM_JOB_PARTITION");
  options.nodes = slurm::expand_hostlist_or_throw(environment("SLURM_JOB_NODELIST"));
  if (options.nodes.empty()) {
    throw user_error("driver.job", fmt::format("job {} names no nodes: SLURM_JOB_NODELIST is empty", options.job),
                     "run it in the job script or in a shell of salloc, with Slurm's environment unchanged");
  }
  options.run_dir = run_dir_of(args, "run-dir");
  if (options.run_dir[0] != '/') {
    char* here = getcwd(nullptr, 0);
    options.run_dir = fmt::format("{}/{}", here, options.run_dir);
    std::free(here);
  }
  options.launch.command = completed(args.list("COMMAND"), options.run_dir);
  if (options.launch.command[0].empty() || options.launch.command[0][0] == '-') {
    throw user_error("driver.command", fmt::format("'{}' is not a command", plain_text(options.launch.command[0], 80)),
                     "options of srun come before it: --srun=OPTION");
  }
  options.launch.srun_options = args.list("srun");
  options.launch.tasks_per_node = args.has("tasks-per-node") ? static_cast<int>(args.get_int("tasks-per-node", 1, 4096))
                                                             : tasks_per_node(environment("SLURM_TASKS_PER_NODE"),
                                                                              environment("SLURM_NTASKS_PER_NODE"));
  options.spares = static_cast<std::size_t>(args.get_int("spares", 0, 65536));
  if (options.spares >= options.nodes.size()) {
    throw user_error("driver.spares", fmt::format("--spares {}: the job has {}, and at least one must train",
                                                  options.spares, plural(options.nodes.size(), "node")));
  }
  options.segments = segments_of(args, options);
  options.least_nodes = static_cast<std::size_t>(args.get_int("min-nodes", 0, 65536));
  options.most_nodes = static_cast<std::size_t>(args.get_int("max-nodes", 0, 65536));
  if (options.most_nodes != 0 && !is_ms_train(options.launch.command)) {
    throw user_error("driver.max_nodes", "--max-nodes works only with ms-train run",
                     "the driver does not know the sizes that other commands can run at");
  }
  options.retry.max_attempts = static_cast<int>(args.get_int("max-attempts", 1));
  options.retry.max_idle = static_cast<int>(args.get_int("max-idle", 1));
  options.retry.max_same = static_cast<int>(args.get_int("max-same-error", 2));
  options.diagnose_level = static_cast<int>(args.get_int("diagnose", 0, 2));
  options.max_requeues = static_cast<int>(args.get_int("max-requeues", 0));
  options.preflight_level = static_cast<int>(args.get_int("preflight", 0, 2));
  options.health_s = args.get_seconds("health-every");
  options.replace_slow = args.has("replace-slow");
  options.queue_wait_s = args.get_seconds("queue-wait");
  options.ends_s = std::strtod(environment("SLURM_JOB_END_TIME"), nullptr);
  options.shrink = args.has("shrink");
  if (options.shrink && !is_ms_train(options.launch.command)) {
    throw user_error("driver.shrink", "--shrink works only with ms-train run, because it changes mesh.dp",
                     "use --min-nodes for a command that can run on fewer nodes");
  }
  options.comment = args.has("comment");
  options.notify = args.get("notify");
  if (!options.notify.empty() && geteuid() == 0) {
    throw user_error("driver.notify", "--notify: ms-diag notify, which sends the messages, does not run as root",
                     "run the job as a user, or let a user run: ms-diag notify --run DIR");
  }
  if (!options.notify.empty() && access(options.notify.c_str(), R_OK) != 0) {
    throw user_error(
        "driver.notify", fmt::format("--notify: {} cannot be read", options.notify),
        "write one as described in ms-notify.toml(5); slack = \"URL\" or alertmanager = \"URL\" is enough");
  }
  options.netcheck = args.get("netcheck");
  options.slurm_conf = environment("SLURM_CONF");
  options.limits.say_done = is_ms_train(options.launch.command);
  options.limits.every_s = report_every_s(options.nodes.size());
  options.limits.hang_s = args.get_seconds("hang-timeout");
  options.limits.node_s = args.get_seconds("node-timeout");
  options.program = net::own_path();
  options.diag = args.get("diag");
  return options;
}

}  // namespace ms::driver
