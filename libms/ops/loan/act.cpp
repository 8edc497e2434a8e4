// ms-loan observe, act and explain: look at Slurm, say or do what the plan says, and tell later why it was done.
#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "base/lock_file.h"
#include "base/log.h"
#include "base/number.h"
#include "base/print.h"
#include "base/text.h"
#include "loan/commands.h"
#include "loan/live.h"
#include "loan/why_waits.h"
#include "slurm/hostlist.h"

namespace ms::loan {
namespace {

constexpr std::int64_t kMostLines = 1000;

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
double poll(const slurm::Commands& slurm, const Policy& policy, const UniqueFd& state, Memory& memory, double now_s) {
  const View view = look(slurm, policy, memory, now_s);
  remember(memory, view, policy);
  const Plan plan = make_plan(view, memory, policy);
  if (may_grow(view, memory, policy)) memory.scaled_s = now_s;
  execute(slurm, policy, view, plan, state, memory);
  write_memory(state, memory);
  write_metrics(state, view, memory);
  return notice_s(policy, view.kill_wait_s);
}

int act(const Args& args) {
  const Policy policy = live_policy_of(args);
  const slurm::Commands slurm(command_options(policy.slurm));
  const UniqueFd state = open_state(policy.slurm.state);
  const FileLock lock = lock_file(policy.slurm.state + "/lock", Blame::user, state.get(), "lock");
  if (!lock.fd) {
    throw user_error("loan.lock", fmt::format("another ms-loan acts in {}: {}", policy.slurm.state, lock.holder));
  }
  Memory memory = read_memory(state);
  SystemClock clock;
  if (args.has("once")) {
    poll(slurm, policy, state, memory, clock.wall_s());
    return 0;
  }
  log::info("loan", "acts on {} every {}", policy.slurm.nodes, format_duration(policy.loan.poll_s));
  std::string trouble;  // of the last poll
  double notice_s = policy.loan.return_s();
  for (;;) {
    const double begin_s = clock.now_s();
    const auto failure = failure_of([&] { notice_s = poll(slurm, policy, state, memory, clock.wall_s()); });
    const std::string now = failure ? failure->message() : std::string();
    if (failure && now != trouble) log::error("loan", "stopped acting, tries again at the next poll: {}", now);
    if (!failure && !trouble.empty()) log::info("loan", "acts again");
    trouble = now;
    clock.sleep_s(begin_s + next_look_s(memory, policy, notice_s, clock.wall_s()) - clock.now_s());
  }
}

// A job's number, if the text is one.
std::optional<std::uint32_t> job_number(std::string_view text) {
  const auto id = whole_number<std::uint32_t>(text);
  return id == 0U ? std::nullopt : id;
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
  return {.name = "policy", .value = "FILE", .doc = "Policy, see ms-loan.toml(5).", .required = true};
}

}  // namespace

Command observe_command() {
  return {.name = "observe",
          .summary = "print what act would do now",
          .options = {policy_option()},
          .run = observe,
          .description =
              "Reads Slurm and the demand once, and changes nothing. The recent demand is what act has recorded."};
}

Command act_command() {
  return {
      .name = "act",
      .summary = "lend idle nodes to training, and reclaim them when inference needs them",
      .options = {policy_option(), {"once", "", "Poll once and exit, for tests and timers."}},
      .run = act,
      .description =
          "act runs until it is killed, as root, SlurmUser or a Slurm operator. No job depends on it, and it can be "
          "killed and restarted at any time, because it reads the current state from Slurm. If Slurm or the demand "
          "cannot be read, it changes nothing and logs the error to standard error. If Slurm refuses to change the "
          "loan partition, act records that once, and tries again at every poll.\n\nThe nodes on loan are those of "
          "the loan partition; they also stay in the partition of inference. To reclaim a node, act removes it from "
          "the loan partition and signals its jobs, and requeues them when the notice time is over. The notice time is "
          "loan.grace minus loan.poll, Slurm's KillWait and slurm.end. A policy that leaves no notice time is "
          "rejected. Create the loan partition without nodes: PartitionName=loan Nodes=\"\" PriorityTier=1, and give "
          "the partition of inference a higher PriorityTier. Jobs that cannot be requeued (sbatch --no-requeue) keep "
          "their nodes, so do not admit them.\n\nact first takes single nodes from elastic runs (ms-train under "
          "ms-driver), which continue on their other nodes. At SIGUSR1, the driver finds the nodes that left the loan "
          "partition, saves a checkpoint, releases them and continues. A run that has not released them when the "
          "notice time is over is requeued like other jobs. Without slurmdbd, Slurm removes nodes from a job only "
          "once. After that, a run that can grow saves a checkpoint and requeues itself instead.\n\nIf nodes on loan "
          "are idle and no job waits for them, act sends SIGUSR1 to the run of ms-driver run --max-nodes that gains "
          "most from them, at most once per schedule.interval. The run saves and requeues its job, and act starts it "
          "at once. act computes the gain from the job's comment. For example, \"ms-driver: elastic from 1 node, start "
          "0 takes 1,2,4, speeds 1:5200,2:9900,4:17000; ...\" lists the minimum number of nodes, the job's restarts "
          "(start), the possible sizes, and the tokens/s by number of nodes. The driver simulates these speeds for the "
          "machines of run.cluster. If a comment has no speeds, act assumes that the run scales linearly. Speeds above "
          "linear scaling are reduced to it. ms-loan explain prints whether speeds or the assumption were used.\n\nA "
          "waiting job of the loan partition takes precedence over extra nodes of elastic runs if it waits only for "
          "nodes (Slurm's reason is Resources or Priority). Among jobs that fit after elastic runs release nodes, act "
          "chooses the one with the shortest time limit, and takes the nodes from the runs that lose least. The node "
          "leaves the loan partition until its run releases it. If the run has not released it when the notice time is "
          "over, the run keeps the node. Slurm decides which job then starts. Jobs that request specific nodes or "
          "features are left to Slurm. loan.shrink = false disables this, and schedule.settle limits its frequency."};
}

Command explain_command() {
  return {.name = "explain",
          .summary = "explain past actions on a job or a node, and why a job does not start",
          .positionals = {{"NAME", "Job ID or node name."}},
          .options = {policy_option()},
          .run = explain,
          .description =
              "Prints actions from the decision log that act keeps in slurm.state. For a job, it also queries Slurm "
              "and the demand. It prints what the job waits for and when enough nodes will be free according to the "
              "time limits of running jobs, or why that is unknown."};
}

}  // namespace ms::loan
