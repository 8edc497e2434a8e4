#include "health/commands/commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <set>

#include "base/clock.h"
#include "base/file.h"
#include "base/library.h"
#include "base/number.h"
#include "base/print.h"
#include "base/progress.h"
#include "base/text.h"
#include "health/act/prolog.h"
#include "health/act/site_check.h"
#include "health/checks/registry.h"
#include "health/commands/examine.h"
#include "health/commands/extension.h"
#include "health/commands/history.h"
#include "health/commands/manual.h"
#include "health/commands/remote.h"
#include "health/commands/report.h"
#include "health/commands/site_history.h"
#include "slurm/hostlist.h"
#include "slurm/job_env.h"
#include "slurm/reach.h"
#include "slurm/requeue.h"

namespace ms::health {
namespace {

constexpr int kOk = 0, kWarned = 1;  // Nagios

Policy policy_of(const Args& args) { return policy_for(args.get("config")); }

slurm::Commands slurm_of(const Policy& policy, double deadline_s) {
  return slurm::Commands(
      {.scontrol = policy.paths.scontrol, .conf = policy.paths.slurm_conf, .deadline_s = deadline_s});
}

constexpr double kPatience_s = 60;

constexpr double kShort_s = 10;  // for a command that only reads a file

// The same command on the nodes of --nodelist.
int on_nodes(const Args& args, std::vector<std::string> words, double deadline_s, bool json = false) {
  const std::vector<std::string> nodes = slurm::expand_hostlist_or_throw(args.get("nodelist"));
  if (nodes.empty()) throw user_error("check.nodes", "the list of nodes is empty");
  if (args.has("config")) words.insert(words.end(), {"--config", args.get("config")});
  if (json) words.emplace_back("--json");
  return print_remote(nodes, {.ssh_config = args.get("ssh-config"), .words = words, .deadline_s = deadline_s}, json);
}

// A monitor that reads the last file would take a node without a policy for a healthy one.
void require_policy(const Args& args) {
  try {
    policy_of(args);
  } catch (const Error&) {
    write_file_atomic(args.get("prometheus"), no_policy_as_prometheus());
    throw;
  }
}

Asked asked_of(const Args& args, int level) {
  for (const char* option : {"directory", "soak", "memory"}) {
    if (level < 3 && args.has(option)) {
      throw user_error("run.level", fmt::format("--{} is for checks of level 3", option), "give --level 3, too");
    }
  }
  Asked asked{.directory = args.get("directory"), .soak_s = args.get_seconds("soak")};
  if (args.has("memory")) {
    const std::optional<std::int64_t> bytes = parse_size_bytes(args.get("memory"));
    if (!bytes || *bytes < 1 << 20) {
      throw user_error("cli.value", fmt::format("--memory: '{}' is no size of at least 1MiB", args.get("memory")));
    }
    asked.memory_bytes = *bytes;
  }
  return asked;
}

std::uint32_t job_number(const std::string& text) {
  const std::uint32_t number = whole_number<std::uint32_t>(text).value_or(0);
  if (number == 0) throw user_error("requeue.job", fmt::format("JOB: '{}' is not the number of a job", text));
  return number;
}

// Root's, in a prolog or epilog. Whatever is wrong with how it was called, the job starts.
int around_job(const Args& args, int (*act)(const std::string&, const slurm::JobEnv&) noexcept) {
  const auto job = slurm::read_job_env([](const char* name) -> const char* { return std::getenv(name); });
  if (!job) {
    print_err("ms-diag: warning: this is no prolog or epilog of Slurm: nothing is done\n");
    return kOk;
  }
  return act(args.get("config"), *job);
}

}  // namespace

int run_command(const Args& args) {
  if (args.has("json") && args.has("nagios")) {
    throw user_error("run.form", "--json and --nagios are two forms of one result: give one");
  }
  const auto level = static_cast<int>(args.get_int("level", 1, 3));
  RunRequest request{.config = args.get("config"),
                     .level = level,
                     .only = args.get("only"),
                     .deadline_s = args.has("deadline") ? std::max(args.get_seconds("deadline"), 1e-9) : 0,
                     .asked = asked_of(args, level),
                     .since_wall_s = args.get_double("since"),
                     .ssh_config = args.get("ssh-config")};
  if (args.has("nodelist")) request.nodes = slurm::expand_hostlist_or_throw(args.get("nodelist"));
  if (args.has("prometheus") && !args.has("nodelist")) require_policy(args);
  SystemClock clock;
  std::optional<Progress> progress;  // level 1 is over before anybody could read it
  std::int64_t ended = 0;
  if (level > 1 && !args.has("nodelist")) {
    progress.emplace("checks", static_cast<std::int64_t>(num_chosen(request)), "checks", clock);
    request.ended = [&](const Result& result) {
      progress->update(++ended, fmt::format("{}: {}", result.code, to_string(result.outcome)));
    };
  }
  const std::vector<Report> reports = examine(request);
  progress.reset();
  if (args.has("json")) {
    write_out(args.has("nodelist") ? as_json(reports) : as_json(reports.at(0)));
  } else if (args.has("nagios")) {
    write_out(as_nagios(reports));
  } else {
    for (const Report& report : reports) write_out(as_text(report, args.has("verbose")));
  }
  if (args.has("prometheus")) write_file_atomic(args.get("prometheus"), as_prometheus(reports));
  const int status = worst_status(reports);
  return status == kWarned && args.has("warnings-pass") ? kOk : status;
}

int list_command(const Args& args) {
  const std::vector<Check> checks = known_checks();
  if (args.has("json")) {
    write_out(list_json(checks));
    return kOk;
  }
  TextTable table(columns("CODE|LEVEL>|BLAME|COST|WHAT IT FINDS"));
  for (const Check& check : checks) {
    table.row({std::string(check.code), std::to_string(check.level), std::string(to_string(check.blame)),
               std::string(to_string(check.cost)), std::string(check.summary)});
  }
  write_out(table.str());
  return kOk;
}

int explain_command(const Args& args) {
  const std::string code = args.get("CODE");
  const bool passive = find_check(passive_checks(), code) != nullptr;
  write_out(explain(passive ? passive_checks() : known_checks(), code));
  return kOk;
}

int history_command(const Args& args) {
  if (args.has("site") + args.has("nodelist") + args.has("samples") > 1) {
    throw user_error("history.form", "--site is of all nodes, --nodelist and --samples are of some: give one");
  }
  if (args.has("site")) return site_history(args);
  if (args.has("samples")) return sample_history(args);
  if (args.has("nodelist")) return on_nodes(args, {"history"}, kShort_s, args.has("json"));
  const std::string state = policy_of(args).paths.state;
  std::vector<HistoryEntry> entries;  // to look must not make the directory
  if (::access(state.c_str(), F_OK) == 0) entries = StateDirectory(state).history();
  if (args.has("json")) {
    write_out(history_json(entries));
  } else {
    write_out(history_text(entries));
  }
  return kOk;
}

int check_site_command(const Args& args) {
  if (args.has("fix") && args.has("json")) {
    throw user_error("check-site.form", "--fix prints lines of configuration, --json findings: give one");
  }
  if (args.has("nodelist")) {
    std::vector<std::string> words{"check-site"};
    if (args.has("fix")) words.emplace_back("--fix");
    return on_nodes(args, words, kPatience_s, args.has("json"));
  }
  const Policy policy = policy_of(args);
  slurm::SiteFacts facts = site_facts(policy, slurm_of(policy, args.get_seconds("deadline")));
  for (const std::string& path : library_paths("ms_spank.so")) {
    if (facts.own_plugin.empty() && ::access(path.c_str(), F_OK) == 0) facts.own_plugin = path;
  }
  const std::vector<Finding> problems = slurm::site_problems(facts);
  Report report{.node = "site", .results = {judged(problems)}};
  report.results[0].code = "site";
  if (args.has("json")) {
    write_out(as_json(report));
    return report.nagios_status();
  }
  if (args.has("fix")) {
    write_out(slurm::site_fix_text(facts));
    return report.nagios_status();
  }
  for (const Finding& problem : problems) {
    print_out("{}: {} {}\n  {}\n", to_string(problem.severity), problem.code, problem.entity + ": " + problem.message,
              problem.remedy);
  }
  if (::access(policy.act.kill_switch.c_str(), F_OK) == 0) {
    print_out("note: {} is there: until it is removed nothing is checked at the start of jobs\n",
              policy.act.kill_switch);
  }
  print_out("{}\n", report.outcome() == "critical" ? "not ready: until this is fixed, jobs may start without a check"
                    : !problems.empty()            ? "ready, with what is said above"
                    : policy.may_act()             ? "ready: mode = \"act\" is set"
                                                   : "ready: mode = \"act\" may be set");
  return report.nagios_status();
}

int undrain_command(const Args& args) {
  if (args.has("nodelist")) {
    if (args.has("node")) throw user_error("undrain.form", "--node names this node, --nodelist others: give one");
    std::vector<std::string> words{"undrain"};
    if (args.has("verified")) words.emplace_back("--verified");
    return on_nodes(args, words, kPatience_s);
  }
  return run_undrain(policy_of(args), args.has("node") ? args.get("node") : slurm::this_node(), args.has("verified"));
}

// Refuses, before anything is done to the job, nodes that Slurm does not know. Warns of so many of them that the job
// may never run again: its least number of nodes is not known.
void check_excluded(const slurm::Commands& slurm, const slurm::Job& job, const std::vector<std::string>& excluded) {
  if (excluded.empty()) return;
  const std::vector<slurm::Node> all = slurm.nodes();
  for (const std::string& name : excluded) {
    if (std::ranges::find(all, name, &slurm::Node::name) == all.end())
      throw user_error("requeue.node", fmt::format("'{}' is not a node of this cluster", plain_text(name, 80)),
                       "sinfo -N lists the nodes");
  }
  const std::vector<std::string> has = slurm::expand_hostlist(job.nodes).value_or(std::vector<std::string>{});
  std::set<std::string> without(excluded.begin(), excluded.end()), partitions;
  for (const std::string& name : slurm::expand_hostlist(job.excluded_nodes).value_or(std::vector<std::string>{}))
    without.insert(name);
  for (const slurm::Node& node : all) {
    if (std::ranges::find(has, node.name) != has.end())
      partitions.insert(node.partitions.begin(), node.partitions.end());
  }
  const auto left = std::ranges::count_if(all, [&](const slurm::Node& node) {
    return !without.contains(node.name) && std::ranges::any_of(node.partitions, [&](const std::string& partition) {
      return partitions.contains(partition);
    });
  });
  if (!has.empty() && static_cast<std::size_t>(left) < has.size())
    print_err(
        "ms-diag: warning: job {} has {}, and only {} of its partition would be left to it: unless its --nodes "
        "takes fewer it never starts again; to undo that: scontrol update JobId={} ExcNodeList=\n",
        job.id, plural(has.size(), "node"), left, job.id);
}

int requeue_command(const Args& args) {
  const char* own = std::getenv("SLURM_JOB_ID");
  const std::string named = args.get("JOB");
  if (named.empty() && own == nullptr) throw user_error("requeue.job", "name a job: this is not run inside one");
  const std::uint32_t job = job_number(named.empty() ? own : named);
  if (args.has("now") && own != nullptr && own == std::to_string(job)) {
    throw user_error("requeue.now", "--now cannot be had inside the job itself: its delay begins when it has ended");
  }
  const std::vector<std::string> nodes = slurm::expand_hostlist_or_throw(args.get("exclude"));
  // Inside the job the requeue ends its script, and with it us, unless we stay for the last step.
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  SystemClock clock;
  const slurm::Commands slurm = slurm_of(policy_of(args), args.get_seconds("deadline"));
  const slurm::Config config = slurm.config();
  check_excluded(slurm, slurm.job(job), nodes);
  slurm::RequeueOptions options = slurm::requeue_without_silence(slurm, config);
  options.say = [](const std::string& text) { print_err("ms-diag: {}\n", text); };
  options.start_now = args.has("now");
  const auto done = slurm::requeue_excluding(slurm, job, nodes, options, clock);
  print_out("job {} is queued again{}{}\n", job,
            nodes.empty() ? "" : ", and will not run on " + slurm::fold_hostlist(nodes),
            args.has("now") && !done.start_advanced ? "; it waits for Slurm's own delay all the same" : "");
  return kOk;
}

int notify_command(const Args& args) {
  return load_notify_extension().notify(
      {.config = args.get("config"), .run = args.get("run"), .once = args.has("once")});
}

int predict_command(const Args& args) { return load_extension().predict(args); }

int prolog_command(const Args& args) { return around_job(args, run_prolog); }
int epilog_command(const Args& args) { return around_job(args, run_epilog); }

int health_command(const Args& args) { return run_health(args.get("config"), slurm::this_node()); }

}  // namespace ms::health
