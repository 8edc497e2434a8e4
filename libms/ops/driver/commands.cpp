#include "driver/commands.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/print.h"
#include "base/text.h"
#include "driver/agent.h"
#include "driver/driver.h"
#include "driver/guard.h"
#include "driver/proof.h"
#include "driver/slurm_nodes.h"
#include "driver/status.h"
#include "net/agents/agent.h"
#include "net/agents/own_launch.h"
#include "slurm/commands.h"
#include "slurm/hostlist.h"

namespace ms::driver {
namespace {

constexpr double kAnswer_s = 5;

constexpr double kWeights_s = 2;  // for an answer that is only a preference

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int number_of(const char* name) {
  const std::optional<std::int64_t> number = [&]() -> std::optional<std::int64_t> {
    char* end = nullptr;
    const char* text = variable(name);
    const long value = std::strtol(text, &end, 10);
    if (end == text || *end != '\0') return std::nullopt;
    return value;
  }();
  return static_cast<int>(number.value_or(0));
}

std::string run_dir_of(const Args& args, const char* name) {
  const std::string given = args.get(name);
  if (!given.empty()) return given;
  if (*variable("SLURM_JOB_ID") == '\0') return ".";
  return fmt::format("runs/{}", variable("SLURM_JOB_ID"));
}

// The command with what the driver adds to it: the run's directory, where it is ms-train's and none is named.
std::vector<std::string> completed(std::vector<std::string> command, const std::string& run_dir) {
  if (!is_ms_train(command)) return command;
  for (const std::string& word : command) {
    if (word.starts_with("run.dir=") || word.starts_with("--set=run.dir=")) {
      throw user_error("driver.run_dir", "run.dir is what --run-dir of ms-driver says", "leave out --set run.dir");
    }
  }
  command.insert(command.end(), {"--set", "run.dir=" + run_dir});
  return command;
}

DriverOptions options_of(const Args& args) {
  DriverOptions options;
  options.job = number_of("SLURM_JOB_ID");
  if (options.job <= 0) {
    throw user_error("driver.job", "this is not run inside a Slurm job",
                     "put it into a job script (sbatch --no-kill), or try it in: salloc --no-kill -N 2");
  }
  const int array = number_of("SLURM_ARRAY_JOB_ID");
  options.shown_job =
      array > 0 ? fmt::format("{}_{}", array, number_of("SLURM_ARRAY_TASK_ID")) : std::to_string(options.job);
  options.restarts = number_of("SLURM_RESTART_COUNT");
  options.partition = variable("SLURM_JOB_PARTITION");
  options.nodes = slurm::expand_hostlist_or_throw(variable("SLURM_JOB_NODELIST"));
  if (options.nodes.empty()) {
    throw user_error("driver.job", fmt::format("job {} names no nodes: SLURM_JOB_NODELIST is empty", options.job),
                     "run it in the job script, or in a shell of salloc, with Slurm's variables as they are");
  }
  options.run_dir = run_dir_of(args, "run-dir");
  if (options.run_dir[0] != '/') {
    char* here = getcwd(nullptr, 0);
    options.run_dir = fmt::format("{}/{}", here, options.run_dir);
    std::free(here);
  }
  options.launch.command = completed(args.list("COMMAND"), options.run_dir);
  if (options.launch.command[0].empty() || options.launch.command[0][0] == '-') {
    throw user_error("driver.command", fmt::format("'{}' is no command", plain_text(options.launch.command[0], 80)),
                     "options of srun come before it: --srun=OPTION");
  }
  options.launch.srun_options = args.list("srun");
  options.launch.tasks_per_node =
      args.has("tasks-per-node") ? static_cast<int>(args.get_int("tasks-per-node", 1, 4096))
                                 : tasks_per_node(variable("SLURM_TASKS_PER_NODE"), variable("SLURM_NTASKS_PER_NODE"));
  options.spares = static_cast<std::size_t>(args.get_int("spares", 0, 65536));
  if (options.spares >= options.nodes.size()) {
    throw user_error("driver.spares", fmt::format("--spares {}: the job has {}, and one must work", options.spares,
                                                  plural(options.nodes.size(), "node")));
  }
  options.least_nodes = static_cast<std::size_t>(args.get_int("min-nodes", 0, 65536));
  options.most_nodes = static_cast<std::size_t>(args.get_int("max-nodes", 0, 65536));
  if (options.most_nodes != 0 && !is_ms_train(options.launch.command)) {
    throw user_error("driver.max_nodes", "--max-nodes is for ms-train run, whose sizes the driver knows",
                     "other commands stay at the nodes of their job");
  }
  options.retry.max_attempts = static_cast<int>(args.get_int("max-attempts", 1));
  options.retry.max_idle = static_cast<int>(args.get_int("max-idle", 1));
  options.diagnose_level = static_cast<int>(args.get_int("diagnose", 0, 2));
  options.max_requeues = static_cast<int>(args.get_int("max-requeues", 0));
  options.preflight_level = static_cast<int>(args.get_int("preflight", 0, 2));
  options.health_s = args.get_seconds("health-every");
  options.shrink = args.has("shrink");
  if (options.shrink && !is_ms_train(options.launch.command)) {
    throw user_error("driver.shrink", "--shrink changes mesh.dp of ms-train run, which this command is not",
                     "name with --min-nodes how few nodes the command can do with");
  }
  options.metrics_port = args.get("metrics-port");
  options.comment = args.has("comment");
  options.notify = args.get("notify");
  if (!options.notify.empty() && geteuid() == 0) {
    throw user_error("driver.notify", "--notify: ms-diag notify, which sends the messages, does not run as root",
                     "run the job as a user, or let a user run: ms-diag notify --run DIR");
  }
  if (!options.notify.empty() && access(options.notify.c_str(), R_OK) != 0) {
    throw user_error("driver.notify", fmt::format("--notify: {} cannot be read", options.notify),
                     "write one as man ms-notify.toml says; slack = \"URL\" or alertmanager = \"URL\" is enough");
  }
  options.netcheck = args.get("netcheck");
  options.slurm_conf = variable("SLURM_CONF");
  options.limits.say_done = is_ms_train(options.launch.command);
  options.limits.every_s = report_every_s(options.nodes.size());
  options.limits.hang_s = args.get_seconds("hang-timeout");
  options.program = net::own_path();
  options.diag = args.get("diag");
  return options;
}

int drive(const Args& args) {
  DriverOptions options = options_of(args);
  const Proof proof = prove_ourselves(variable("SLURM_CONF"));
  options.munge_socket = proof.socket;
  if (options.spares > 0) {
    options.kept_for_last = ask_kept_for_last(slurm::Commands({.conf = options.slurm_conf, .deadline_s = kWeights_s}));
  }
  make_directories(options.run_dir);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  return guarded([&](int signals) {
    options.signals = signals;
    SystemClock clock;
    Driver driver(options, *proof.credentials, clock);
    return driver.run();
  });
}

int be_agent(const Args& args) {
  run_agent({.drivers = split(args.get("connect"), ','),
             .node = net::node_name(),
             .job = static_cast<int>(args.get_int("job", 1)),
             .socket = args.get("heartbeat"),
             .evidence = args.get("evidence"),
             .every_s = args.get_seconds("every"),
             .diag = args.get("diag"),
             .health_s = args.get_seconds("health-every")},
            *munge_credentials(args.get("munge")));
  return 0;
}

// `name`: of the argument that is the directory.
DriverFiles files_of(const Args& args, const char* name) {
  DriverFiles files(run_dir_of(args, name));
  if (access(files.dir.c_str(), F_OK) != 0) {
    const std::string run_dir = run_dir_of(args, name);
    const bool is_plain_run = access((run_dir + "/metrics.jsonl").c_str(), F_OK) == 0;
    throw user_error(
        "driver.run_dir", fmt::format("no driver has been in {}", files.dir),
        is_plain_run
            ? fmt::format("{0} is a run without ms-driver: 'ms-tracepp report --follow {0}' follows it", run_dir)
            : "name the directory that ms-driver run was given as --run-dir, mostly runs/JOBID");
  }
  return files;
}

int show_status(const Args& args) {
  const DriverFiles files = files_of(args, "DIR");
  while (true) {
    const std::string document = read_file(files.status(), Blame::user);
    if (args.has("json")) {
      write_out(document);
      return 0;
    }
    const std::optional<Json> json = Json::try_parse(document);
    const Json* written = json ? json->find("written_s") : nullptr;
    const double age_s =
        written != nullptr && written->is_number() ? SystemClock().wall_s() - written->get<double>() : 0;
    const std::string text = status_text(document, age_s);
    if (!args.has("watch")) {
      write_out(text);
      return 0;
    }
    write_screen(text);
    std::fflush(stdout);
    SystemClock().sleep_s(1);
  }
}

int show_report(const Args& args) {
  const DriverFiles files = files_of(args, "DIR");
  const double now_s = SystemClock().wall_s();
  const Ledger ledger = read_ledger(read_file(files.ledger(), Blame::user), files.ledger());
  write_out(args.has("json") ? to_json(ledger, now_s) : report_text(ledger, now_s));
  return 0;
}

// Asks the driver of a run; prints its answer.
int ask(const Args& args, const Json& question) {
  const DriverFiles files = files_of(args, "run-dir");
  const std::optional<DriverState> state = read_state(read_file(files.state(), Blame::user));
  if (!state) throw Error("driver.state", Blame::storage, fmt::format("{} is not understood", files.state()));
  const Proof proof = prove_ourselves(variable("SLURM_CONF"));
  std::string why = "it names no address";
  for (const std::string& text : state->addresses) {
    const std::optional<link::Address> address = link::parse_address(text);
    if (!address) continue;
    try {
      const link::Deadline deadline = link::in_seconds(kAnswer_s);
      link::Channel driver = join(*address, "client", "", *proof.credentials, deadline);
      driver.send_line(question.dump(), deadline);
      const std::optional<Json> answer = Json::try_parse(driver.receive_line(deadline));
      print_out("{}\n",
                answer && answer->contains("answer") ? plain_text(answer->get<std::string>("answer"), 500) : "");
      return 0;
    } catch (const Error& error) { why = error.message(); }
  }
  throw Error("driver.unreachable", Blame::peer, fmt::format("the driver of {} does not answer: {}", files.dir, why),
              "is its job still running? See: squeue");
}

const Option kRunDir{.name = "run-dir",
                     .value = "DIR",
                     .doc = "The directory of the run, on storage that all nodes share; without it runs/JOBID."};
const Positional kDir{.name = "DIR",
                      .doc = "The directory of the run; without it runs/JOBID inside a job, else this one.",
                      .required = false};

}  // namespace

Command run_command() {
  return {
      .name = "run",
      .summary = "run a command over the nodes of this job, and keep it running",
      .positionals = {{.name = "COMMAND", .doc = "The command that srun starts, with its arguments.", .many = true}},
      .options =
          {{.name = "spares",
            .value = "K",
            .doc = "Nodes to keep aside: first those that ms-diag avoid has Slurm use last.",
            .default_text = "0"},
           kRunDir,
           {.name = "tasks-per-node", .value = "N", .doc = "As of srun; without it, as the job has it."},
           {.name = "srun", .value = "OPTION", .doc = "An option for srun.", .many = true},
           {.name = "min-nodes",
            .value = "N",
            .doc = "Go on with so few, if the command can; without it, no fewer than at first.",
            .default_text = "0"},
           {.name = "max-nodes",
            .value = "N",
            .doc = "When ms-loan says that nodes are idle, save and have the elastic run's job queued again, which "
                   "then gets what is free: the maximum of sbatch --nodes=MIN-MAX. 0: it does not grow.",
            .default_text = "0"},
           {.name = "hang-timeout",
            .value = "TIME",
            .doc = "No step for so long is a hang, until the heartbeats have taught a shorter time: three times the "
                   "longest of the last steps, and 4 s, or up to 5 s where they differ and a rank may lack a "
                   "processor; 2 s where a signal has stopped a rank. Without heartbeats, no output.",
            .default_text = "10m"},
           {.name = "max-attempts", .value = "N", .doc = "Give up after so many.", .default_text = "100"},
           {.name = "max-idle",
            .value = "N",
            .doc = "Give up after so many on end that came no further.",
            .default_text = "3"},
           {.name = "max-requeues",
            .value = "N",
            .doc = "Queue the job again, at most so often, when its time limit is near (sbatch "
                   "--signal=B:USR2@300) or too few nodes are left, and without the bad ones.",
            .default_text = "0"},
           {.name = "shrink",
            .doc = "Of ms-train run: with too few nodes, go on with a smaller mesh.dp that the configuration "
                   "allows and the same global batch, rather than end or be queued again."},
           {.name = "preflight",
            .value = "0|1|2",
            .doc = "Before the first attempt, ms-diag looks at all nodes, spares too, and bad ones are left out; "
                   "0: not at all.",
            .default_text = "0"},
           {.name = "metrics-port",
            .value = "PORT",
            .doc = "Prometheus may read the run's metrics at this port of the batch node's loopback interface, or "
                   "at ADDRESS:PORT; DIR/driver/metrics.prom has them in any case."},
           {.name = "comment", .doc = "The job's comment in Slurm says how the run does (squeue -O comment)."},
           {.name = "notify",
            .value = "FILE",
            .doc = "Tell Alertmanager or Slack when the run is interrupted and when it ends, as this "
                   "ms-notify.toml(5) says; ms-diag notify --run DIR does it."},
           {.name = "diagnose",
            .value = "0|1|2",
            .doc = "How ms-diag looks at suspects while the others train; 0: not at all.",
            .default_text = "2"},
           {.name = "health-every",
            .value = "TIME",
            .doc = "While the run trains, ms-diag (level 1) looks at every node so often; one with a critical "
                   "finding gives way to a spare, if there is one. 0: not at all.",
            .default_text = "1m"},
           {.name = "diag", .value = "PROGRAM", .doc = "The ms-diag of the nodes.", .default_text = "ms-diag"},
           {.name = "netcheck",
            .value = "PROGRAM",
            .doc = "The ms-netcheck of the nodes, for a run that hangs and no node stands out, and for suspects "
                   "that the network may have made look so.",
            .default_text = "ms-netcheck"}},
      .run = drive};
}

Command status_command() {
  return {.name = "status",
          .summary = "show what a driven run does now",
          .positionals = {kDir},
          .options = {{.name = "json", .doc = "One JSON document."}, {.name = "watch", .doc = "Again every second."}},
          .run = show_status};
}
Command report_command() {
  return {.name = "report",
          .summary = "show every attempt of a run, what ended it, and what it cost",
          .positionals = {kDir},
          .options = {{.name = "json", .doc = "The ledger."}},
          .run = show_report};
}
Command evict_command() {
  return {.name = "evict",
          .summary = "take a node out of a run, which goes on without it",
          .positionals = {{.name = "NODE", .doc = "As Slurm calls it."}},
          .options = {kRunDir},
          .run = [](const Args& args) {
            return ask(args, Json{{"ask", "evict"}, {"node", args.get("NODE")}});
          }};
}
Command give_back_command() {
  return {.name = "give-back",
          .summary = "save, and go on without nodes, which leave the job",
          .positionals = {{.name = "NODES", .doc = "A hostlist, without the node of the batch script."}},
          .options = {kRunDir},
          .run = [](const Args& args) {
            return ask(args, Json{{"ask", "give-back"}, {"nodes", args.get("NODES")}});
          }};
}
Command resize_command() {
  return {.name = "resize",
          .summary = "save, and go on with so many nodes of the job",
          .positionals = {{.name = "COUNT", .doc = "At most so many; the others become spares."}},
          .options = {kRunDir},
          .run = [](const Args& args) {
            return ask(args, Json{{"ask", "resize"}, {"number", args.get_int("COUNT", 1, 65536)}});
          }};
}
Command stop_command() {
  return {.name = "stop",
          .summary = "end a run after its step, with a checkpoint",
          .options = {{.name = "checkpoint", .doc = "Save first, which is what ms-train does in any case."}, kRunDir},
          .run = [](const Args& args) {
            return ask(args, Json{{"ask", "stop"}});
          }};
}
Command agent_command() {
  return {.name = "agent",
          .summary = "hear the ranks of a node and report to the driver (run starts it)",
          .options = {{.name = "job", .value = "ID", .doc = "The job."},
                      {.name = "heartbeat", .value = "SOCKET", .doc = "For the ranks, in a directory that is made."},
                      {.name = "connect", .value = "ADDRESSES", .doc = "Where the driver listens."},
                      {.name = "evidence",
                       .value = "DIR",
                       .doc = "For the stacks of a run that hangs; without it nowhere."},
                      {.name = "every", .value = "TIME", .doc = "Between two reports.", .default_text = "250ms"},
                      {.name = "diag", .value = "PROGRAM", .doc = "The ms-diag.", .default_text = "ms-diag"},
                      {.name = "health-every",
                       .value = "TIME",
                       .doc = "Between two looks of ms-diag at this node; 0: none.",
                       .default_text = "0"},
                      {.name = "munge", .value = "SOCKET", .doc = "Of munged; without it the usual one."}},
          .run = be_agent};
}

}  // namespace ms::driver
