// ms-loan observe, act and explain: look at Slurm, say or do what the plan says, and tell later why it was done.
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "base/lock_file.h"
#include "base/log.h"
#include "base/print.h"
#include "base/text.h"
#include "base/user_path.h"
#include "loan/commands.h"
#include "loan/live.h"
#include "loan/why_waits.h"
#include "slurm/hostlist.h"

namespace ms::loan {
namespace {

constexpr std::int64_t kMostLines = 1000;

// The error of Slurm, of the demand or of a file that ended `step`; nullopt: none did.
std::optional<Error> failure_of(const std::function<void()>& step) {
  try {
    step();
    return std::nullopt;
  } catch (const Error& error) { return error; }
}

Policy policy_of(const Args& args) { return load_policy(args.get("policy")); }

Policy live_policy_of(const Args& args) {
  Policy policy = policy_of(args);
  check_live(policy);
  return policy;
}

View look(const slurm::Commands& slurm, const Policy& policy, const Memory& memory, double now_s) {
  const int demand = read_demand_now(policy);
  View view = read_view(slurm, policy, now_s);
  view.demand_nodes = demand;
  if (takes_back(view, policy) || may_grow(view, memory, policy) || may_shrink(view, memory, policy))
    read_elastic(slurm, view);
  return view;
}

std::string described(const View& view, const Plan& plan) {
  std::vector<std::string> on_loan, returning, troubled;
  for (const LiveNode& node : view.nodes) {
    if (!node.trouble.empty()) troubled.push_back(node.name);
    if (node.on_loan) on_loan.push_back(node.name);
    if (!node.on_loan && !node.jobs.empty()) returning.push_back(node.name);
  }
  std::string text =
      fmt::format("{} in the policy, inference needs {}\n", plural(view.nodes.size(), "node"), view.demand_nodes);
  for (const auto& [what, nodes] :
       {std::pair{"on loan", &on_loan}, {"going back", &returning}, {"in trouble", &troubled}}) {
    if (!nodes->empty()) text += fmt::format("{}: {}\n", what, slurm::fold_hostlist(*nodes));
  }
  for (const Action& action : plan.actions) {
    const std::string object = action.node.empty() ? fmt::format("job {}", action.job) : action.node;
    text += fmt::format("{} {}: {}\n", to_string(action.step), object, action.reason);
  }
  for (const std::string& note : plan.notes) text += fmt::format("not now: {}\n", note);
  if (plan.actions.empty()) text += "nothing to do\n";
  return text;
}

int observe(const Args& args) {
  const Policy policy = live_policy_of(args);
  const slurm::Commands slurm(command_options(policy.slurm));
  Memory memory = read_memory(policy.slurm.state);
  const View view = look(slurm, policy, memory, SystemClock().wall_s());
  remember(memory, view, policy);
  write_out(described(view, make_plan(view, memory, policy)));
  return 0;
}

// Returns how long jobs have to save.
double poll(const slurm::Commands& slurm, const Policy& policy, Memory& memory, double now_s) {
  const View view = look(slurm, policy, memory, now_s);
  remember(memory, view, policy);
  const Plan plan = make_plan(view, memory, policy);
  if (may_grow(view, memory, policy)) memory.scaled_s = now_s;
  execute(slurm, policy, view, plan, memory);
  write_memory(policy.slurm.state, memory);
  write_metrics(policy.slurm.state, view, memory);
  return notice_s(policy, view.kill_wait_s);
}

int act(const Args& args) {
  const Policy policy = live_policy_of(args);
  const slurm::Commands slurm(command_options(policy.slurm));
  make_user_directories(policy.slurm.state);
  const FileLock lock = lock_file(policy.slurm.state + "/lock", Blame::user);
  if (!lock.fd) {
    throw user_error("loan.lock", fmt::format("another ms-loan acts in {}: {}", policy.slurm.state, lock.holder));
  }
  Memory memory = read_memory(policy.slurm.state);
  SystemClock clock;
  if (args.has("once")) {
    poll(slurm, policy, memory, clock.wall_s());
    return 0;
  }
  log::info("loan", "acts on {} every {}", policy.slurm.nodes, format_duration(policy.loan.poll_s));
  std::string trouble;  // of the last poll
  double notice_s = policy.loan.return_s();
  for (;;) {
    const double begin_s = clock.now_s();
    const auto failure = failure_of([&] { notice_s = poll(slurm, policy, memory, clock.wall_s()); });
    const std::string now = failure ? failure->message() : std::string();
    if (failure && now != trouble) log::error("loan", "stopped acting, tries again at the next poll: {}", now);
    if (!failure && !trouble.empty()) log::info("loan", "acts again");
    trouble = now;
    clock.sleep_s(begin_s + next_look_s(memory, policy, notice_s, clock.wall_s()) - clock.now_s());
  }
}

// A job's number, if the text is one.
std::optional<std::uint32_t> job_number(std::string_view text) {
  std::uint32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size() || id == 0) return std::nullopt;
  return id;
}

// Says why a job does not start, and when it could, by what Slurm and the demand say now.
std::string waits(std::uint32_t id, const Policy& policy) {
  check_live(policy);
  const slurm::Commands slurm(command_options(policy.slurm));
  const slurm::Job job = slurm.job(id);
  if (const std::string text = not_waiting_text(job); !text.empty()) return text + "\n";
  Memory memory = read_memory(policy.slurm.state);
  const View view = look(slurm, policy, memory, SystemClock().wall_s());
  remember(memory, view, policy);
  return waiting_text(job, view, make_plan(view, memory, policy), policy);
}

int explain(const Args& args) {
  const Policy policy = policy_of(args);
  const std::string name = args.get("NAME");
  std::string text = actions_about(policy.slurm.state, name, kMostLines);
  if (text.empty()) text = fmt::format("nothing was done to {}\n", name);
  if (const std::optional<std::uint32_t> id = job_number(name)) {
    if (const auto failure = failure_of([&] { text += waits(*id, policy); })) {
      if (failure->blame() == Blame::bug) throw *failure;
      text += fmt::format("why job {} does not start, if it waits, cannot be said: {}\n", *id, failure->message());
    }
  }
  write_out(text);
  return 0;
}

Option policy_option() {
  return {.name = "policy", .value = "FILE", .doc = "The policy, see ms-loan.toml(5).", .required = true};
}

}  // namespace

Command observe_command() {
  return {.name = "observe",
          .summary = "say what act would do now",
          .options = {policy_option()},
          .run = observe,
          .description =
              "Reads Slurm and the demand once, and changes nothing. What demand was lately is what act has "
              "watched."};
}

Command act_command() {
  return {
      .name = "act",
      .summary = "put idle nodes on loan, and take them back when inference needs them",
      .options = {policy_option(), {.name = "once", .doc = "One poll, for tests and for timers."}},
      .run = act,
      .description =
          "Runs until it is killed, as root, SlurmUser or a Slurm operator; no job depends on it. The nodes on "
          "loan are those of the loan partition, which inference's partition has, too; a node that goes back "
          "leaves it, jobs on it get the signal, and after the notice they are queued again. What is under way is "
          "read from Slurm, so that it may be killed and started again at any time. While Slurm or the demand "
          "cannot be read nothing is changed, and standard error says so. The notice is so much shorter than "
          "loan.grace that a poll, Slurm's KillWait and slurm.end have room in it; a policy without room for these is "
          "refused.\n\n"
          "Create the loan partition without nodes: PartitionName=loan Nodes=\"\" PriorityTier=1, and inference's "
          "with a higher PriorityTier. "
          "Elastic runs, of ms-train under ms-driver, are asked for single nodes first: at SIGUSR1 the driver sees "
          "which "
          "of its nodes have left the loan partition, saves, lets go of them and goes on. One that has not when the "
          "notice is over is queued again, as other jobs are. Slurm without slurmdbd takes nodes out of a job once: "
          "the "
          "second time a run that may grow saves and has itself queued again. "
          "Where nodes on loan are idle and no job waits for any, the run that gains most of those that may grow "
          "(ms-driver run --max-nodes) gets SIGUSR1 too, one every schedule.interval: it saves and has its job queued "
          "again, which act then starts at once. What a run gains is read from its job's comment: \"ms-driver: elastic "
          "from 1 node, start 0 takes 1,2,4, speeds 1:5200,2:9900,4:17000; ...\" has its least nodes, the sizes that "
          "it could have, and tokens/s by nodes, which the driver simulates for the machines of run.cluster. A run "
          "without speeds counts as fast as its nodes, and none as faster; ms-loan explain says which was used.\n\n"
          "A job of the loan partition that waits for nothing but nodes (Slurm's reason is Resources or Priority) "
          "comes "
          "before extra nodes: the shortest by its time limit, of those that fit when elastic runs give some up, gets "
          "them from the runs that lose least. Such a node leaves the loan partition until its run has let go of it, "
          "and a run that has not when the notice is over keeps it. Which job then starts is Slurm's choice. Jobs that "
          "name nodes or features are left to Slurm. loan.shrink = false forbids it, schedule.settle limits how "
          "often.\n\n"
          "Jobs that may not be queued again (sbatch --no-requeue) keep their nodes: do not let them in."};
}

Command explain_command() {
  return {.name = "explain",
          .summary = "say what was done to a job or a node, and why, and why a job does not start",
          .positionals = {{.name = "NAME", .doc = "A job's number or a node."}},
          .options = {policy_option()},
          .run = explain,
          .description =
              "What was done is read from the log of decisions that act keeps in slurm.state. Of a job Slurm and the "
              "demand are asked, too: what it waits for, and when there are enough nodes for it, by the time limits of "
              "the jobs that have them; or why that cannot be known."};
}

}  // namespace ms::loan
