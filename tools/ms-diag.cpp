// ms-diag: node diagnostics. Operators run it by hand and in monitoring, users before they requeue, and root in every
// prolog and epilog (through ms_spank.so, or ms-prolog and ms-epilog). It needs only libc and libstdc++; what needs
// more is loaded on demand.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/cli.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "health/examine.h"
#include "health/extension.h"
#include "health/manual.h"
#include "health/prolog.h"
#include "health/report.h"
#include "health/site_check.h"
#include "health/state.h"
#include "slurm/hostlist.h"
#include "slurm/requeue.h"

namespace {

using ms::Args;
using namespace ms::health;

constexpr int kOk = 0, kUnknown = 3;

Policy policy_of(const Args& args) { return policy_for(args.get("config")); }

ms::slurm::Commands slurm_of(const Policy& policy, double deadline_s) {
  return ms::slurm::Commands(
      {.scontrol = policy.paths.scontrol, .conf = policy.paths.slurm_conf, .deadline_s = deadline_s});
}

constexpr double kPatience_s = 60, kPatienceActive_s = 150;  // the deadlines of the active checks add up to 115 s

int run(const Args& args) {
  if (args.has("json") && args.has("nagios")) {
    throw ms::user_error("run.form", "--json and --nagios are two forms of one result: give one");
  }
  const auto level = static_cast<int>(args.get_int("level", 1, 2));
  RunRequest request{.config = args.get("config"),
                     .level = level,
                     .only = args.get("only"),
                     .deadline_s = args.has("deadline") ? args.get_seconds("deadline")
                                   : level == 1         ? kPatience_s
                                                        : kPatienceActive_s,
                     .ssh_config = args.get("ssh-config")};
  if (args.has("nodelist")) request.nodes = ms::slurm::expand_hostlist_or_throw(args.get("nodelist"));
  const std::vector<Report> reports = examine(request);
  if (args.has("json")) {
    fmt::print("{}", args.has("nodelist") ? as_json(reports) : as_json(reports.at(0)));
  } else if (args.has("nagios")) {
    fmt::print("{}", as_nagios(reports));
  } else {
    for (const Report& report : reports) fmt::print("{}", as_text(report, args.has("verbose")));
  }
  if (args.has("prometheus")) ms::write_file_atomic(args.get("prometheus"), as_prometheus(reports));
  return worst_status(reports);
}

int list(const Args& args) {
  if (args.has("json")) {
    fmt::print("{}", list_json(all_checks()));
    return kOk;
  }
  ms::TextTable table({{"CODE"}, {"LEVEL", ms::Align::right}, {"BLAME"}, {"COST"}, {"WHAT IT FINDS"}});
  for (const Check& check : all_checks()) {
    table.row({std::string(check.code), std::to_string(check.level), std::string(to_string(check.blame)),
               std::string(to_string(check.cost)), std::string(check.summary)});
  }
  fmt::print("{}", table.str());
  return kOk;
}

int show_history(const Args& args) {
  const std::string state = policy_of(args).paths.state;
  std::vector<HistoryEntry> entries;  // to look must not make the directory
  if (::access(state.c_str(), F_OK) == 0) entries = StateDirectory(state).history();
  if (args.has("json")) {
    fmt::print("{}", history_json(entries));
  } else {
    fmt::print("{}", history_text(entries));
  }
  return kOk;
}

int check_site(const Args& args) {
  const Policy policy = policy_of(args);
  const std::vector<ms::Finding> problems =
      ms::slurm::site_problems(site_facts(policy, slurm_of(policy, args.get_seconds("deadline"))));
  Report report{.node = "site", .results = {judged(problems)}};
  report.results[0].code = "site";
  if (args.has("json")) {
    fmt::print("{}", as_json(report));
    return report.nagios_status();
  }
  for (const ms::Finding& problem : problems) {
    fmt::print("{}: {} {}\n  {}\n", to_string(problem.severity), problem.code, problem.entity + ": " + problem.message,
               problem.remedy);
  }
  if (::access(policy.act.kill_switch.c_str(), F_OK) == 0) {
    fmt::print("note: {} is there: until it is removed nothing is checked at the start of jobs\n",
               policy.act.kill_switch);
  }
  fmt::print("{}\n", report.outcome() == "critical" ? "not ready: until this is mended, mode = \"act\" drains nothing"
                     : problems.empty()             ? "ready: mode = \"act\" may be set"
                                                    : "ready, with what is said above");
  return report.nagios_status();
}

int undrain(const Args& args) {
  return run_undrain(policy_of(args), args.has("node") ? args.get("node") : this_node(), args.has("verified"));
}

std::uint32_t job_number(const std::string& text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number == 0) {
    throw ms::user_error("requeue.job", fmt::format("JOB: '{}' is not the number of a job", text));
  }
  return number;
}

int requeue(const Args& args) {
  const char* own = std::getenv("SLURM_JOB_ID");
  const std::string named = args.get("JOB");
  if (named.empty() && own == nullptr) throw ms::user_error("requeue.job", "name a job: this is not run inside one");
  const std::uint32_t job = job_number(named.empty() ? own : named);
  if (args.has("now") && own != nullptr && own == std::to_string(job)) {
    throw ms::user_error("requeue.now",
                         "--now cannot be had inside the job itself: its delay begins when it has ended");
  }
  const std::vector<std::string> nodes = ms::slurm::expand_hostlist_or_throw(args.get("exclude"));
  // Inside the job the requeue ends its script, and with it us, unless we stay for the last step.
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  ms::SystemClock clock;
  const auto done = ms::slurm::requeue_excluding(slurm_of(policy_of(args), args.get_seconds("deadline")), job, nodes,
                                                 {.start_now = args.has("now")}, clock);
  fmt::print("job {} is queued again{}{}\n", job,
             nodes.empty() ? "" : ", and will not run on " + ms::slurm::fold_hostlist(nodes),
             args.has("now") && !done.start_advanced ? "; it waits for Slurm's own delay all the same" : "");
  return kOk;
}

int notify(const Args& args) {
  return load_notify_extension().notify({.config = args.get("config"), .once = args.has("once")});
}

// Root's, in a prolog or epilog. Whatever is wrong with how it was called, the job starts.
int around_job(const Args& args, int (*act)(const std::string&, const ms::slurm::JobEnv&) noexcept) {
  const auto job = ms::slurm::read_job_env([](const char* name) -> const char* { return std::getenv(name); });
  if (!job) {
    fmt::print(stderr, "ms-diag: warning: this is no prolog or epilog of Slurm: nothing is done\n");
    return kOk;
  }
  return act(args.get("config"), *job);
}

const ms::Option kConfig{.name = "config",
                         .value = "FILE",
                         .doc = "The policy; without it that of the site, /etc/ms/ms-diag.toml, if there is one."};
const ms::Option kJson{.name = "json", .doc = "JSON instead of lines for people."};
const ms::Option kSlurmDeadline{
    .name = "deadline", .value = "TIME", .doc = "How long one question to Slurm may take.", .default_text = "10s"};

const ms::Tool kTool{
    .name = "ms-diag",
    .summary = "find out whether a node is fit to train",
    .commands = {{.name = "run",
                  .summary = "run checks and say what they found",
                  .options = {{.name = "level",
                               .value = "L",
                               .doc = "1: passive, at once. 2: active too, which loads the node: mostly some seconds, "
                                      "at most two minutes.",
                               .default_text = "1"},
                              {.name = "only",
                               .value = "GLOB",
                               .doc = "Only checks whose codes match, as in 'gpu.*' or 'gpu.*,net.link'.",
                               .default_text = "*"},
                              kJson,
                              {.name = "nagios", .doc = "One line for Nagios and its kin."},
                              {.name = "prometheus",
                               .value = "FILE",
                               .doc = "Writes FILE too, for the textfile collector, all at once."},
                              {.name = "deadline",
                               .value = "TIME",
                               .doc = "When all must be done; what is not is skipped.",
                               .default_text = "60s"},
                              {.name = "nodelist",
                               .value = "HOSTLIST",
                               .doc = "Runs on these nodes, by ssh, drained ones too.",
                               .letter = 'w'},
                              {.name = "ssh-config", .value = "FILE", .doc = "A configuration for that ssh."},
                              kConfig,
                              {.name = "verbose", .doc = "Shows what passed and was skipped, too.", .letter = 'v'}},
                  .run = run},
                 {.name = "list", .summary = "show all checks", .options = {kJson}, .run = list},
                 {.name = "explain",
                  .summary = "say what a finding means and what to do about it",
                  .positionals = {{.name = "CODE", .doc = "The code of a check."}},
                  .run =
                      [](const Args& args) {
                        fmt::print("{}", explain(args.get("CODE")));
                        return kOk;
                      }},
                 {.name = "history",
                  .summary = "show what was decided on this node",
                  .options = {kJson, kConfig},
                  .run = show_history},
                 {.name = "check-site",
                  .summary = "say what Slurm's configuration lacks for pre-flight to act",
                  .options = {kJson, kSlurmDeadline, kConfig},
                  .run = check_site},
                 {.name = "undrain",
                  .summary = "take back ms-diag's own drain of this node",
                  .options =
                      {{.name = "verified", .doc = "Only if level 1 now finds nothing that drains."},
                       {.name = "node", .value = "NAME", .doc = "This node's name in Slurm; without it the host's."},
                       kConfig},
                  .run = undrain,
                  .description = "Messages of the kernel from before that moment do not count any more. A reason that "
                                 "somebody else gave is left alone."},
                 {.name = "requeue",
                  .summary = "queue a job again, without some nodes",
                  .positionals = {{.name = "JOB", .doc = "Its number; inside a job that job.", .required = false}},
                  .options =
                      {{.name = "exclude", .value = "HOSTLIST", .doc = "Nodes that it shall not run on again."},
                       {.name = "now",
                        .doc = "Does not wait for Slurm's own delay before a requeued job starts; not inside the job."},
                       kSlurmDeadline,
                       kConfig},
                  .run = requeue,
                  .description =
                      "Run by the job's owner, inside the job or elsewhere. The nodes are added to those that the "
                      "job excludes already. The job is held for the moment that this takes."},
                 {.name = "notify",
                  .summary = "send what happened to Alertmanager and Slack",
                  .options = {{.name = "config",
                               .value = "FILE",
                               .doc = "Where to send to.",
                               .default_text = "/etc/ms/ms-notify.toml"},
                              {.name = "once", .doc = "Sends what there is and leaves."}},
                  .run = notify,
                  .description = "Runs as any user but root."},
                 {.name = "prolog",
                  .summary = "check this node before a job (for ms_spank.so and ms-prolog)",
                  .options = {{.name = "config", .value = "FILE", .doc = "The policy.", .default_text = kPolicyPath}},
                  .run = [](const Args& args) { return around_job(args, run_prolog); },
                  .description =
                      "Exits 69 if this node was drained and Slurm shall start the job elsewhere, otherwise 0."},
                 {.name = "epilog",
                  .summary = "check this node after a failed job (for ms_spank.so and ms-epilog)",
                  .options = {{.name = "config", .value = "FILE", .doc = "The policy.", .default_text = kPolicyPath}},
                  .run = [](const Args& args) { return around_job(args, run_epilog); }}},
    .description =
        "Looks at the evidence that a node itself gives: its GPUs, its kernel's log, its disks and mounts, "
        "its links. Nothing is changed, except by undrain and requeue. What the checks find is explained in "
        "ms-checks(7).",
    .examples = {{.command = "ms-diag run", .doc = "Is this node healthy?"},
                 {.command = "ms-diag run -w 'node[01-16]' --only 'gpu.*'", .doc = "Ask sixteen nodes for their GPUs:"},
                 {.command = "srun -N2 --ntasks-per-node=1 --mpi=pmix ms-diag run --level 2",
                  .doc = "Load two nodes, and the way between them:"},
                 {.command = "ms-diag explain gpu.remap", .doc = "What is this finding?"}},
    .see_also = {"ms-checks(7)", "ms-diag.toml(5)", "ms-notify.toml(5)", "ms_spank(8)", "ms-train(1)"},
    .exit_status = {{0, "No check found anything."},
                    {1, "A check warned."},
                    {2, "A check is critical."},
                    {3, "Unknown: nothing could be checked, or the command line or the configuration is wrong."}},
    .failure_status = kUnknown,
    .extra_pages = {{.option = "--man-checks", .text = checks_page},
                    {.option = "--man-policy", .text = policy_page},
                    {.option = "--man-notify", .text = [] { return load_notify_extension().page(); }}}};

}  // namespace

int main(int argc, char** argv) { return ms::run_tool(kTool, argc, argv); }
