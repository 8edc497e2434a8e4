#include "loan/live.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/number.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "base/user_path.h"
#include "slurm/elastic.h"
#include "slurm/hostlist.h"
#include "unpack/csv.h"

namespace ms::loan {
namespace {

constexpr std::size_t kMaxDemandBytes = 4096;
constexpr std::size_t kMaxDemandChars = 60;
constexpr std::size_t kMostSizes = 64;         // that a job's comment may name
constexpr double kMostSpeed = 1e18;            // samples or tokens/s
constexpr const char* kDriverSignal = "USR1";  // at which ms-driver looks at its partition
constexpr std::string_view kSignalChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-";

// States in which a node runs nothing new, as scontrol shows them.
constexpr std::array<std::string_view, 13> kTroubles = {
    "DOWN",         "DRAIN", "DRAINED", "DRAINING", "FAIL",           "FAILING",      "MAINT",
    "POWERED_DOWN", "INVAL", "UNKNOWN", "FUTURE",   "NOT_RESPONDING", "REBOOT_ISSUED"};

std::string trouble_of(const slurm::Node& node) {
  for (const std::string_view state : kTroubles) {
    if (node.has_state(state)) return fmt::format("it is {}", state);
  }
  return {};
}

std::string demand_text(const Policy& policy) {
  const DemandConfig& demand = policy.demand;
  if (!demand.file.empty()) return read_user_file(demand.file, kMaxDemandBytes);
  const SubprocessResult result =
      run_subprocess(demand.command, {.deadline_s = policy.slurm.deadline_s, .max_output_bytes = kMaxDemandBytes});
  if (!result.ok()) {
    throw user_error("loan.demand", fmt::format("demand.command {}: {} {}", demand.command.front(), result.describe(),
                                                plain_text(result.err, kMaxDemandChars)));
  }
  return result.out;
}

// A program that is not there is a mistake of the policy, found before anything is done.
void require_program(std::string_view key, const std::string& program) {
  if (!program.empty() && program.find('/') == std::string::npos) return;  // found by PATH
  if (::access(program.c_str(), X_OK) == 0) return;
  throw user_error("loan.program", fmt::format("{} '{}' of the policy: {}", key, plain_text(program, kMaxDemandChars),
                                               errno_text(errno)));
}

// "30 sec"; Slurm's own default, where it does not say.
double kill_wait_s(const slurm::Config& config) {
  constexpr double kSlurmsDefault_s = 30;
  const auto found = config.find("KillWait");
  if (found == config.end()) return kSlurmsDefault_s;
  return unpack::parse_number(found->second.substr(0, found->second.find(' '))).value_or(kSlurmsDefault_s);
}

// Jobs that nothing but nodes keeps from starting: Slurm's reason of all others is another.
std::vector<WaitingJob> wants_of(const std::map<std::uint32_t, slurm::Job>& waiting,
                                 const std::vector<slurm::Request>& requests) {
  std::vector<WaitingJob> wants;
  for (const slurm::Request& request : requests) {
    const auto job = waiting.find(request.id);
    if (job == waiting.end() || !request.any_nodes) continue;
    if (job->second.reason != "Resources" && job->second.reason != "Priority") continue;
    wants.push_back(
        {.id = request.id,
         .nodes = request.nodes,
         .limit_s = request.limit_s,
         .excluded = slurm::expand_hostlist(job->second.excluded_nodes).value_or(std::vector<std::string>{})});
  }
  return wants;
}

std::string list_of(const std::vector<std::string>& nodes) { return slurm::fold_hostlist(nodes); }

}  // namespace

slurm::CommandOptions command_options(const SlurmConfig& config) {
  return {.scontrol = config.scontrol, .conf = config.conf, .deadline_s = config.deadline_s};
}

std::optional<Error> failure_of(const std::function<void()>& step) {
  try {
    step();
    return std::nullopt;
  } catch (const Error& error) { return error; }
}

void check_live(const Policy& policy) {
  if (policy.demand.file.empty() && policy.demand.command.empty()) {
    throw user_error("loan.demand", "the policy says neither demand.file nor demand.command",
                     "one of them must say how many nodes inference needs now");
  }
  const SlurmConfig& config = policy.slurm;
  require_program("slurm.scontrol", config.scontrol);
  if (!policy.demand.command.empty()) require_program("demand.command", policy.demand.command.front());
  if (config.loan_partition.empty()) throw user_error("loan.partition", "slurm.loan_partition of the policy is empty");
  if (config.signal.find_first_not_of(kSignalChars) != std::string::npos) {
    throw user_error("loan.signal", fmt::format("slurm.signal '{}' is no signal", plain_text(config.signal, 20)),
                     "USR1, say; empty: none is sent");
  }
  if (slurm::expand_hostlist_or_throw(config.nodes).empty()) {
    throw user_error("loan.nodes", "slurm.nodes of the policy is empty", "name the nodes that may be loaned");
  }
}

int read_demand_now(const Policy& policy) {
  const std::string text = demand_text(policy);
  const std::optional<double> nodes = unpack::parse_number(text);
  if (!nodes || *nodes < 0 || *nodes > slurm::kMaxHosts) {
    throw user_error("loan.demand",
                     fmt::format("demand '{}' is no number of nodes", plain_text(text, kMaxDemandChars)));
  }
  return static_cast<int>(std::ceil(*nodes));
}

View read_view(const slurm::Commands& slurm, const Policy& policy, double now_s) {
  const std::vector<std::string> names = slurm::expand_hostlist_or_throw(policy.slurm.nodes);
  View view;
  view.now_s = now_s;
  std::map<std::string, std::size_t> index_of;
  for (const std::string& name : names) {
    if (!index_of.try_emplace(name, view.nodes.size()).second) continue;
    view.nodes.push_back({.name = name, .trouble = "Slurm does not know it"});
  }
  const std::string& partition = policy.slurm.loan_partition;
  for (const std::string& name : slurm::expand_hostlist_or_throw(slurm.partition(partition).nodes)) {
    const auto found = index_of.find(name);
    if (found == index_of.end()) {
      throw user_error(
          "loan.partition",
          fmt::format("partition {} has node {}, which slurm.nodes of the policy does not name", partition, name),
          "ms-loan must be the only one who writes this partition's nodes");
    }
    view.nodes[found->second].on_loan = true;
  }
  for (const slurm::Node& node : slurm.nodes()) {
    const auto found = index_of.find(node.name);
    if (found == index_of.end()) continue;
    LiveNode& live = view.nodes[found->second];
    live.trouble = trouble_of(node);
    live.completing = node.has_state("COMPLETING");
    live.idle = node.has_state("IDLE") && !live.completing;
  }
  view.kill_wait_s = kill_wait_s(slurm.config());
  std::map<std::uint32_t, slurm::Wait> starts;
  for (const slurm::Wait& wait : slurm.waits_of(partition)) {
    starts[wait.id] = wait;
    view.started.push_back({.job = wait.id, .restarts = wait.restarts, .waited_s = wait.seconds});
  }
  std::map<std::uint32_t, slurm::Job> waiting;
  for (const slurm::Job& job : slurm.jobs_of(partition)) {
    if (!job.runs()) {
      if (!job.pending() || job.held() || job.reason == "Dependency") continue;
      view.waiting.push_back(job.id);
      waiting[job.id] = job;
      continue;
    }
    const std::vector<std::string> hosts = slurm::expand_hostlist_or_throw(job.nodes);
    for (const std::string& host : hosts) {
      if (const auto found = index_of.find(host); found != index_of.end()) {
        view.nodes[found->second].jobs.push_back(static_cast<int>(view.jobs.size()));
      }
    }
    view.jobs.push_back({.id = job.id,
                         .nodes = std::max(1, static_cast<int>(hosts.size())),
                         .restarts = starts[job.id].restarts,
                         .batch_node = hosts.empty() ? std::string() : hosts.front(),
                         .left_s = starts[job.id].left_s});
  }
  if (!waiting.empty()) view.wants = wants_of(waiting, slurm.requests_of(partition));
  return view;
}

namespace {

// Slurm's error, where it did not do it: what follows is then logged, and recorded behind the action.
std::optional<Error> try_on(const UniqueFd& state, double now_s, Action action, std::string_view otherwise,
                            const std::function<void()>& step) {
  const std::optional<Error> failure = failure_of(step);
  if (failure) {
    log::error("loan", "job {} {}: {}", action.job, otherwise, failure->message());
    action.reason = fmt::format("failed, the job {}: {}", otherwise, failure->message());
    note_action(state, now_s, action);
  }
  return failure;
}

// Takes the number of nodes at the beginning of the text; 0: there is none.
int take_count(std::string_view& text) {
  return std::clamp(take_number<int>(text).value_or(0), 0, static_cast<int>(slurm::kMaxHosts));
}

// The curve "NODES:SPEED,NODES:SPEED,..."; anything else is none.
void read_curve(std::string_view text, LiveJob& job) {
  std::vector<std::pair<double, double>> points;
  for (const std::string& pair : split(text, ',')) {
    const std::size_t colon = std::min(pair.find(':'), pair.size());
    const std::optional<double> nodes = unpack::parse_number(pair.substr(0, colon));
    const std::optional<double> speed = unpack::parse_number(colon < pair.size() ? pair.substr(colon + 1) : "");
    if (!nodes || !speed || points.size() == kMostSizes) return;
    if (!(*nodes >= 1 && *nodes <= slurm::kMaxHosts && *speed > 0 && *speed <= kMostSpeed)) return;
    if (points.empty()) {
      points.emplace_back(*nodes, *speed);
      continue;
    }
    const auto [before, slower] = points.back();
    if (*nodes <= before) return;
    points.emplace_back(*nodes, std::min(*speed, slower * *nodes / before));
  }
  if (points.empty()) return;
  job.curve = SpeedCurve(std::move(points));
  job.has_curve = true;
}

}  // namespace

void read_elastic_comment(std::string_view comment, LiveJob& job) {
  if (!comment.starts_with(slurm::kElasticComment)) return;
  comment = comment.substr(0, comment.find(slurm::kElasticEnd)).substr(slurm::kElasticComment.size());
  job.least_nodes = take_count(comment);
  const std::size_t speeds = comment.find(slurm::kSpeedsComment);
  if (speeds != std::string_view::npos) {
    read_curve(comment.substr(speeds + slurm::kSpeedsComment.size()), job);
    comment = comment.substr(0, speeds);
  }
  const std::size_t start = comment.find(slurm::kStartComment);
  if (start == std::string_view::npos) return;
  comment.remove_prefix(start + slurm::kStartComment.size());
  const bool of_this_start = take_count(comment) == job.restarts;
  if (!of_this_start || !comment.starts_with(slurm::kSizesComment)) return;
  comment.remove_prefix(slurm::kSizesComment.size());
  for (int size = take_count(comment); size > 0; size = take_count(comment)) {
    if (job.sizes.empty() || size > job.sizes.back()) job.sizes.push_back(size);
    if (comment.empty() || job.sizes.size() == kMostSizes) break;
    comment.remove_prefix(1);
  }
  job.may_grow = !job.sizes.empty() && job.sizes.back() > job.nodes;
}

void read_elastic(const slurm::Commands& slurm, View& view) {
  for (LiveJob& job : view.jobs) read_elastic_comment(slurm.comment_of(job.id), job);
}

namespace {

void record(const UniqueFd& state, double now_s, const Action& action) {
  note_action(state, now_s, action);
  log::info("loan", "{} {}: {}", to_string(action.step),
            action.node.empty() ? fmt::format("job {}", action.job) : action.node, action.reason);
}

bool by_partition(const Action& action) { return action.step == Step::lend || action.step == Step::reclaim; }

// Gives the loan partition the nodes that the plan says.
void change_partition(const slurm::Commands& slurm, const std::string& partition, const View& view, const Plan& plan,
                      const UniqueFd& state, Memory& memory) {
  const auto was_refused = [&](const Action& action) {
    const auto refused = memory.refused.find(action.node);
    return refused != memory.refused.end() && refused->second == to_string(action.step);
  };
  std::vector<Action> first, again;  // not refused before, and refused
  for (const Action& action : plan.actions)
    if (by_partition(action)) (was_refused(action) ? again : first).push_back(action);
  for (const Action& action : first) record(state, view.now_s, action);
  std::vector<std::string> on_loan;
  for (const LiveNode& node : view.nodes)
    if (node.on_loan) on_loan.push_back(node.name);
  if (list_of(on_loan) != list_of(plan.on_loan)) {
    const auto refusal = failure_of([&] { slurm.set_partition_nodes(partition, list_of(plan.on_loan)); });
    if (refusal) {
      for (Action action : first) {
        action.reason = fmt::format("refused, tried again at the next poll: {}", refusal->message());
        note_action(state, view.now_s, action);
      }
      memory.refused.clear();
      for (const Action& action : plan.actions)
        if (by_partition(action)) memory.refused[action.node] = to_string(action.step);
      write_memory(state, memory);
      throw *refusal;
    }
  }
  for (const Action& action : again) record(state, view.now_s, action);  // this time it is done
  memory.refused.clear();
}

}  // namespace

void execute(const slurm::Commands& slurm, const Policy& policy, const View& view, const Plan& plan,
             const UniqueFd& state, Memory& memory) {
  const auto send = [&](const Action& action, const std::string& signal) {
    const auto step = [&] { slurm.signal_batch(action.job, signal); };
    if (const auto failed = try_on(state, view.now_s, action, "is asked again", step)) throw *failed;
  };
  // A node that leaves the partition for a job that waits must be known by that before it has left.
  memory.handing = plan.handing;
  if (!memory.handing.empty()) write_memory(state, memory);
  // Everything is recorded before it is done: whoever is killed between records an action twice rather than never.
  change_partition(slurm, policy.slurm.loan_partition, view, plan, state, memory);
  for (const Action& action : plan.actions) {
    if (!by_partition(action)) record(state, view.now_s, action);
    switch (action.step) {
      case Step::lend:
        memory.lent_s = view.now_s;
        ++memory.lent;
        break;
      case Step::reclaim: {
        ++memory.reclaimed;
        // Its job may have left it by the next round.
        const auto node = std::ranges::find(view.nodes, action.node, &LiveNode::name);
        if (node != view.nodes.end() && !node->jobs.empty()) memory.leaving.try_emplace(node->name, view.now_s);
        break;
      }
      case Step::shrink: break;  // the notice comes with it
      case Step::notify: {
        const bool elastic = !action.nodes.empty();
        if (elastic) memory.asked[action.job] = action.nodes;
        const std::string signal = elastic ? kDriverSignal : policy.slurm.signal;
        if (!signal.empty()) send(action, signal);
        memory.notices.try_emplace(action.job, view.now_s);
        write_memory(state, memory);
        break;
      }
      case Step::requeue:
        if (try_on(state, view.now_s, action, "keeps its nodes", [&] { slurm.requeue(action.job); })) continue;
        ++memory.preemptions;
        memory.notices.erase(action.job);
        memory.asked.erase(action.job);
        break;
      case Step::grow:
        send(action, kDriverSignal);
        memory.growing[action.job] = view.now_s;
        write_memory(state, memory);
        break;
      case Step::start:
        memory.growing.erase(action.job);
        ++memory.grown;
        try_on(state, view.now_s, action, "waits for Slurm's own delay", [&] { slurm.start_now(action.job); });
        break;
    }
  }
}

}  // namespace ms::loan
