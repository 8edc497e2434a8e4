#include "driver/commands.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/print.h"
#include "base/text.h"
#include "base/user_path.h"
#include "driver/agent.h"
#include "driver/driver.h"
#include "driver/guard.h"
#include "driver/heir.h"
#include "driver/incident.h"
#include "driver/options.h"
#include "driver/proof.h"
#include "driver/slurm_nodes.h"
#include "driver/status.h"
#include "net/agents/agent.h"
#include "slurm/commands.h"
#include "slurm/hostlist.h"
#include "slurm/job_env.h"

namespace ms::driver {
namespace {

constexpr double kAnswer_s = 5;
constexpr std::size_t kMostFile_bytes = std::size_t{64} << 20;  // of a status or ledger
constexpr std::size_t kIncidents = 20;                          // on a page, the newest
constexpr double kSeen_s = 3, kGone_s = 60;  // since the driver wrote its status, which it does once a second
constexpr double kJob_s = 2;                 // for Slurm to say whether a job runs
constexpr double kWeights_s = 2;             // for an answer that is only a preference
constexpr double kAnswerOfSlurm_s = 30;      // for one that decides what becomes of the job

int drive(const Args& args) {
  DriverOptions options = options_of(args);
  const Proof proof = prove_ourselves(environment("SLURM_CONF"));
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
  const std::string node = slurm::this_node();
  const int job = static_cast<int>(args.get_int("job", 1));
  const bool was_told = run_agent({.drivers = split(args.get("connect"), ','),
                                   .node = node,
                                   .job = job,
                                   .socket = environment("MS_HEARTBEAT"),
                                   .evidence = args.get("evidence"),
                                   .every_s = args.get_seconds("every"),
                                   .diag = args.get("diag"),
                                   .health_s = args.get_seconds("health-every")},
                                  *munge_credentials(args.get("munge")));
  const std::string driver_node = args.get("requeue-without");
  if (was_told || driver_node.empty()) return 0;
  std::vector<std::string> others = slurm::expand_hostlist_or_throw(environment("SLURM_JOB_NODELIST"));
  std::erase(others, driver_node);
  const Heir heir{.job = static_cast<std::uint32_t>(job),
                  .restarts = static_cast<int>(args.get_int("restarts", 0)),
                  .driver_node = driver_node,
                  .turn = static_cast<std::size_t>(std::ranges::find(others, node) - others.begin())};
  SystemClock clock;
  inherit(heir, slurm::Commands({.conf = environment("SLURM_CONF"), .deadline_s = kAnswerOfSlurm_s}), clock);
  return 0;
}

// `name`: of the argument that is the directory.
DriverFiles files_of(const Args& args, const char* name) {
  DriverFiles files(run_dir_of(args, name));
  if (access(files.dir.c_str(), F_OK) != 0) {
    const std::string dir = run_dir_of(args, name);
    const bool is_plain_run = access((dir + "/metrics.jsonl").c_str(), F_OK) == 0;
    throw user_error("driver.run_dir", fmt::format("ms-driver has not run in {}", files.dir),
                     is_plain_run ? fmt::format("{0} is a run without ms-driver: use ms-tracepp report {0}", dir)
                                  : "pass the --run-dir of ms-driver run, by default runs/JOBID");
  }
  return files;
}

// Whether the job of a driver that has not ended runs, and runs that driver; nullopt: Slurm does not say.
std::optional<bool> job_runs(std::string_view status) {
  const std::optional<JobStart> start = unended_job(status);
  if (!start) return std::nullopt;
  try {
    const slurm::Job job = slurm::Commands({.conf = environment("SLURM_CONF"), .deadline_s = kJob_s}).job(start->job);
    return job.runs() && job.restarts == start->restarts;
  } catch (const Error&) { return std::nullopt; }  // such as one that Slurm knows no longer, or never knew here
}

int show_status(const Args& args) {
  const DriverFiles files = files_of(args, "DIR");
  while (true) {
    const std::string document = read_user_file(files.status(), kMostFile_bytes);
    if (args.has("json")) {
      write_out(document);
      return 0;
    }
    const double now_s = SystemClock().wall_s();
    const double age_s = std::max(0.0, now_s - written_s(document).value_or(now_s));
    const std::string text = status_text(document, age_s, age_s > kSeen_s ? job_runs(document) : std::nullopt);
    if (!args.has("watch")) {
      write_out(text);
      return 0;
    }
    write_screen(text);
    std::fflush(stdout);
    SystemClock().sleep_s(1);
  }
}

std::string run_name(const Ledger& ledger) {
  if (ledger.attempts.empty()) return "A run without attempts";
  return "Run of job " + plain_text(ledger.attempts.back().job, 60);
}

int show_report(const Args& args) {
  const DriverFiles files = files_of(args, "DIR");
  const double now_s = SystemClock().wall_s();
  Ledger ledger = read_ledger(read_user_file(files.ledger(), kMostFile_bytes), files.ledger());
  const bool has_status = access(files.status().c_str(), F_OK) == 0;
  if (has_status && !ledger.attempts.empty() && ledger.attempts.back().ended_s == 0) {
    const std::string status = read_user_file(files.status(), kMostFile_bytes);
    const double seen_s = written_s(status).value_or(now_s);
    if (!job_runs(status).value_or(now_s - seen_s < kGone_s)) ledger.close(seen_s);
  }
  if (args.has("output")) {
    if (args.has("json")) throw user_error("cli.usage", "--output writes a page, --json prints the ledger: choose one");
    const std::string page = args.get("output");
    write_user_file(page, incident_page(ledger, read_incidents(ledger, files, kIncidents), run_name(ledger), now_s));
    print_out("wrote {}: open it in a browser\n", page);
    return 0;
  }
  write_out(args.has("json") ? to_json(ledger, now_s) : report_text(ledger, now_s));
  return 0;
}

// Asks the driver of a run; prints its answer.
int ask(const Args& args, const Json& question) {
  const DriverFiles files = files_of(args, "run-dir");
  const std::optional<DriverState> state = stored_state(open_driver_directory(run_dir_of(args, "run-dir")));
  if (!state) throw Error("driver.state", Blame::storage, fmt::format("{} cannot be parsed", files.state()));
  const Proof proof = prove_ourselves(environment("SLURM_CONF"));
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

const Option kRunDir{"run-dir", "DIR", "Directory of the run, on storage that all nodes share (default: runs/JOBID)."};
const Positional kDir{.name = "DIR",
                      .doc = "Directory of the run (default: runs/JOBID inside a job, else the current directory).",
                      .required = false};

}  // namespace

Command run_command() {
  return {.name = "run",
          .summary = "run a command on the nodes of this job and restart it after faults",
          .positionals = {{.name = "COMMAND", .doc = "Command for srun to start, with its arguments.", .many = true}},
          .options =
              {{"spares", "K", "Keep K nodes as spares, preferably those marked by ms-diag avoid.", "0"},
               kRunDir,
               {"tasks-per-node", "N", "Tasks per node, as for srun (default: the job's)."},
               {.name = "srun", .value = "OPTION", .doc = "Pass this option to srun.", .many = true},
               {"segment", "N",
                "Take the nodes of every attempt N at a time from one block of Slurm's topology (of topology/tree: one "
                "leaf switch), as sbatch --segment does. The run then has one size. A spare then replaces a node of "
                "its own block. Leave spares in "
                "every block. Default: the job's --segment; 0: take any nodes."},
               {"min-nodes", "N",
                "Continue if at least N nodes are left. 0: all nodes but the spares; in an elastic run, 1.", "0"},
               {"max-nodes", "N",
                "Let an elastic run grow to N nodes, the MAX of sbatch --nodes=MIN-MAX. When ms-loan reports idle "
                "nodes, the driver saves a checkpoint and requeues the job. 0: do not grow.",
                "0"},
               {"hang-timeout", "TIME",
                "Treat TIME without a step as a hang. Heartbeats shorten this to three times the longest recent step "
                "plus 2 to 5 s, but to no less than 30 s if the command names no sections of a step; see HEARTBEATS. "
                "Without heartbeats, TIME without output is a hang.",
                "10m"},
               {"node-timeout", "TIME",
                "Treat a node as lost after at most TIME without a sign of life from it and without a step of the "
                "ranks. A node that no spare could replace always gets the full TIME; the ranks of ms-train wait as "
                "long only with run.least_timeout = TIME.",
                "60s"},
               {"max-attempts", "N", "Stop after N attempts.", "100"},
               {"max-idle", "N",
                "Stop after N consecutive attempts without progress: without a step beyond the best one. Of a command "
                "without heartbeats no step is known, and an attempt of 10 minutes or more that does not hang counts "
                "as progress.",
                "3"},
               {"max-same-error", "N",
                "Stop after the same error of the program ended N consecutive attempts, even with progress. Without "
                "progress, two are enough.",
                "5"},
               {"max-requeues", "N",
                "Requeue the job at most N times, without its bad nodes. This happens when its time limit is near "
                "(sbatch --signal=B:USR2@300) or too few nodes are left.",
                "0"},
               {"shrink", "",
                "If too few nodes are left, continue ms-train run with a smaller mesh.dp and the same global batch, "
                "instead of stopping or requeueing."},
               {"replace-slow", "",
                "Leave a node at the next checkpoint if steps take more than twice as long as before, the kernel keeps "
                "ranks of this node, and of no other, from running, and a spare, or with --max-requeues the queue, "
                "costs less time than the node does. Without this option the node is only reported."},
               {"queue-wait", "TIME",
                "Expect that the job, requeued for a node in place of a slow one, waits this long (default: the most "
                "that ByteRobust, arXiv 2509.16293, reports).",
                "768s"},
               {"preflight", "0|1|2",
                "Check all nodes, spares included, with ms-diag at this level before the first attempt, and exclude "
                "bad ones. 0: do not check.",
                "0"},
               {"comment", "", "Show the state of the run in the job's Slurm comment (squeue -O comment)."},
               {"notify", "FILE",
                "Send interruptions, a slow run and the end of the run to Alertmanager, to Slack or by mail. FILE "
                "configures ms-diag notify, see ms-notify.toml(5)."},
               {"diagnose", "0|1|2",
                "Check suspects with ms-diag at this level while the other nodes train. 0: do not check.", "2"},
               {"health-every", "TIME",
                "Check every node with ms-diag at level 1 this often during training, and replace a node with a "
                "critical finding by a spare, if there is one; and ask Slurm whether nodes are drained. 0: do neither.",
                "1m"},
               {"diag", "PROGRAM", "Path of ms-diag on the nodes.", "ms-diag"},
               {"netcheck", "PROGRAM",
                "Path of ms-netcheck on the nodes. After a hang without a suspect, the driver tests all nodes with it; "
                "otherwise, suspects that may have had a network problem.",
                "ms-netcheck"}},
          .run = drive};
}

Command status_command() {
  return {.name = "status",
          .summary = "show the current state of a run",
          .positionals = {kDir},
          .options = {{"json", "", "Print one JSON document."}, {"watch", "", "Refresh every second."}},
          .run = show_status};
}
Command report_command() {
  return {.name = "report",
          .summary = "show every attempt of a run, why it ended and the time lost",
          .positionals = {kDir},
          .options = {{"json", "", "Print the ledger as JSON."},
                      {.name = "output",
                       .value = "FILE",
                       .doc = "Write a page to FILE that can be mailed: what broke, where, what was done, and what "
                              "was seen when.",
                       .letter = 'o'}},
          .run = show_report};
}
Command evict_command() {
  return {.name = "evict",
          .summary = "exclude a node; the run continues without it",
          .positionals = {{"NODE", "Name of the node in Slurm."}},
          .options = {kRunDir},
          .run = [](const Args& args) {
            return ask(args, Json{{"ask", "evict"}, {"node", args.get("NODE")}});
          }};
}
Command readmit_command() {
  return {.name = "readmit",
          .summary = "take an excluded node again, after its repair",
          .positionals = {{"NODE", "Name of the node in Slurm."}},
          .options = {kRunDir},
          .run = [](const Args& args) {
            return ask(args, Json{{"ask", "readmit"}, {"node", args.get("NODE")}});
          }};
}
Command give_back_command() {
  return {.name = "give-back",
          .summary = "save a checkpoint, release nodes from the job, and continue without them",
          .positionals = {{"NODES",
                           "Hostlist of the nodes to release. The node of the batch script cannot be released. Of a "
                           "run with one size only nodes that do not work can: spares, and those left out."}},
          .options = {kRunDir},
          .run = [](const Args& args) {
            return ask(args, Json{{"ask", "give-back"}, {"nodes", args.get("NODES")}});
          }};
}
Command resize_command() {
  return {.name = "resize",
          .summary = "save a checkpoint and continue on at most COUNT nodes of the job",
          .positionals = {{"COUNT", "Maximum number of nodes; the others become spares."}},
          .options = {kRunDir},
          .run = [](const Args& args) {
            return ask(args, Json{{"ask", "resize"}, {"number", args.get_int("COUNT", 1, 65536)}});
          }};
}
Command stop_command() {
  return {.name = "stop",
          .summary = "end a run after its current step; ms-train saves a checkpoint",
          .options = {kRunDir},
          .run = [](const Args& args) {
            return ask(args, Json{{"ask", "stop"}});
          }};
}
Command agent_command() {
  return {
      .name = "agent",
      .summary = "relay heartbeats of a node's ranks to the driver (started by run)",
      .options = {{"job", "ID", "ID of the job."},
                  {"connect", "ADDRESSES", "Addresses of the driver."},
                  {"evidence", "DIR",
                   "Directory for the stacks of a hung run and reports of NCCL's RAS (default: do not write them)."},
                  {"every", "TIME", "Interval between reports.", "250ms"},
                  {"diag", "PROGRAM", "Path of ms-diag.", "ms-diag"},
                  {"health-every", "TIME", "Interval between checks of this node with ms-diag. 0: do not check.", "0"},
                  {"requeue-without", "NODE",
                   "Requeue the job if it loses NODE, where the driver runs (default: do not)."},
                  {"restarts", "N", "Restarts of the job so far.", "0"},
                  {"munge", "SOCKET", "Socket of munged (default: MUNGE's)."}},
      .run = be_agent};
}

}  // namespace ms::driver
