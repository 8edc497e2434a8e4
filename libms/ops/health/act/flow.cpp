#include "health/act/flow.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/text.h"
#include "health/act/act.h"
#include "health/act/decide.h"
#include "health/act/notes.h"

namespace ms::health {
namespace {

using log::Level;
using Tell = Memory::Tell;

constexpr int kLetStart = 0;
constexpr int kFailProlog = static_cast<int>(ExitCode::node_fault);
constexpr std::size_t kMaxCounters = 500;
constexpr double kCounterAge_s = 3600;  // an unchanged counter is kept anew this often: the shortest window of growth

constexpr int kOk = 0, kWarning = 1, kCritical = 2;  // Nagios

// Anything but a clear "there is none" counts as there: who cannot look must not act.
bool switched_off(const Policy& policy) {
  struct stat status {};
  return ::lstat(policy.act.kill_switch.c_str(), &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

struct Examination {
  std::vector<Result> results;
  std::vector<Finding> findings;
};

// One run of level 1 on this node. The kernel's log counts since this time and the last undrain.
Examination look_at_node(const Policy& policy, const World& world, const State& state, double not_before_wall_s = 0) {
  const double undrained_wall_s = since_undrain(state, Sysroot(policy.paths.sysroot), world.clock);
  Examination seen;
  seen.results = world.run_checks({.deadline_s = policy.prolog.deadline_s,
                                   .not_before_wall_s = std::max(not_before_wall_s, undrained_wall_s),
                                   .before = state.counters});
  for (const Result& result : seen.results) {
    if (result.outcome == Outcome::broken) {
      world.say(Level::warn, fmt::format("the check {} is broken: {}", result.code, result.note));
    }
    if (result.outcome != Outcome::warn && result.outcome != Outcome::critical) continue;
    for (const Finding& finding : result.findings) {
      world.say(finding.severity == Severity::critical ? Level::error : Level::warn, finding.str());
      seen.findings.push_back(finding);
    }
  }
  return seen;
}

void keep_counters(State& state, const std::vector<Result>& results) {
  for (const Result& result : results) {
    for (const auto& [name, counter] : result.counters) {
      const auto kept = state.counters.find(name);
      const bool same = kept != state.counters.end() && kept->second.value == counter.value &&
                        kept->second.wall_s <= counter.wall_s && counter.wall_s - kept->second.wall_s < kCounterAge_s;
      if (!same) state.counters[name] = counter;
    }
  }
  while (state.counters.size() > kMaxCounters) {  // those of devices that are gone are the oldest
    state.counters.erase(
        std::min_element(state.counters.begin(), state.counters.end(),
                         [](const auto& a, const auto& b) { return a.second.wall_s < b.second.wall_s; }));
  }
}

// Slurm and the machine may have its name with and without the domain.
bool same_host(const std::string& a, const std::string& b) {
  const std::size_t dot_a = a.find('.'), dot_b = b.find('.');
  if (dot_a != std::string::npos && dot_b != std::string::npos) return a == b;
  return a.substr(0, dot_a) == b.substr(0, dot_b);
}

// Stores the findings and counters for the next run. Runs after the decision, because the disk itself may be bad.
void keep(const Memory& memory, const Examination& seen, std::uint32_t job_id) {
  for (const Finding& finding : seen.findings) {
    const std::string text = finding.str();
    memory.remember({.event = "finding",
                     .code = finding.code,
                     .message = text,
                     .job_id = job_id,
                     .about = text.substr(0, text.find(": "))},
                    Tell::hourly);
  }
  memory.change([&](State& state) { keep_counters(state, seen.results); });
}

// Returns what the node is drained for. A job of others may be what a slow file system waits for: while one runs, or
// where Slurm does not tell, nothing that only took too long counts.
std::vector<Finding> draining_now(const Examination& seen, const Policy& policy, const slurm::JobEnv& job,
                                  const World& world) {
  std::vector<Finding> bad = draining(seen.findings, policy, &job), sure = draining(seen.findings, policy, &job, true);
  bool others_run = sure.size() < bad.size();
  if (!others_run) return bad;
  world.attempt("asking for jobs", [&] {
    const std::vector<std::uint32_t> jobs = world.slurm->jobs_on(job.node);
    others_run = std::ranges::any_of(jobs, [&](std::uint32_t id) { return id != job.job_id; });
  });
  return others_run ? sure : bad;
}

// Looks at the node, and drains it where the policy says so; fails no job.
void look_and_drain(const Policy& policy, const slurm::JobEnv& job, const World& world, const Memory& memory,
                    const State& state) {
  const Examination seen = look_at_node(policy, world, state);
  const std::vector<Finding> bad = draining_now(seen, policy, job, world);
  if (!bad.empty()) act_on(bad, When::after_end, policy, job, world, memory);
  keep(memory, seen, job.job_id);
}

// Collects the reasons why a job was restarted, on its first node. Only restarted jobs pay for this query to Slurm.
void collect_earlier_notes(const slurm::JobEnv& job, const World& world, std::vector<std::string>& to_user) {
  if (job.restarts <= 0 || !job.is_batch_host()) return;
  world.attempt("asking Slurm for the job's AdminComment", [&] {
    std::vector<std::string> notes = notes_in(world.slurm->job(job.job_id).admin_comment);
    std::erase_if(notes, [&](const std::string& note) {
      return std::find(to_user.begin(), to_user.end(), note) != to_user.end();
    });
    to_user.insert(to_user.begin(), notes.begin(), notes.end());
  });
}

}  // namespace

slurm::Node own_node(const std::string& name, const World& world) {
  const std::vector<slurm::Node> nodes = world.slurm->nodes();
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [&](const slurm::Node& node) { return node.name == name; });
  if (found == nodes.end()) {
    throw user_error("undrain.node", fmt::format("Slurm knows no node '{}'", name),
                     "run it on the node, and if that has another name in Slurm give --node");
  }
  const std::string& host = found->host.empty() ? found->name : found->host;
  if (!same_host(host, world.host)) {
    throw user_error("undrain.host", fmt::format("{} is the machine '{}', and this is '{}'", name, host, world.host),
                     fmt::format("run it on {}, or: ssh {} ms-diag undrain", host, host));
  }
  return *found;
}

std::string not_verified(const std::string& reason, const std::vector<Result>& results) {
  const std::vector<std::string> words = split(reason.substr(kReasonPrefix.size()), ' ');
  bool first_ran = false;
  for (const Result& result : results) {
    if (std::find(words.begin(), words.end(), result.code) == words.end()) continue;
    if (result.outcome != Outcome::pass && result.outcome != Outcome::warn) {
      return fmt::format("{}: {}{}{}", result.code, to_string(result.outcome), result.note.empty() ? "" : ", ",
                         result.note);
    }
    first_ran = first_ran || result.code == words[0];
  }
  return first_ran ? "" : fmt::format("{}: it did not run", words[0]);
}

int prolog_flow(const Policy& policy, const slurm::JobEnv& job, const World& world) {
  if (switched_off(policy)) {
    world.say(Level::info, fmt::format("nothing is checked: {} is there", policy.act.kill_switch));
    return kLetStart;
  }
  if (job.preflight == slurm::Preflight::off) {
    world.say(Level::info, fmt::format("job {} asked for no check{}", job.job_id,
                                       policy.act.allow_off ? "" : ", which the policy does not allow"));
    if (policy.act.allow_off) return kLetStart;
  }
  const Memory memory(policy, world, job.node);
  const State state = memory.state();
  const Examination seen = look_at_node(policy, world, state);
  const std::vector<Finding> bad = draining_now(seen, policy, job, world);
  Acted acted;
  if (!bad.empty()) acted = act_on(bad, When::before_start, policy, job, world, memory);
  if (!acted.fail_job) {
    collect_earlier_notes(job, world, acted.to_user);
    if (!acted.to_user.empty()) {
      world.attempt("the job is not told", [&] { Notes(policy.paths.notes).write(job.job_id, acted.to_user); });
    }
  }
  keep(memory, seen, job.job_id);
  return acted.fail_job ? kFailProlog : kLetStart;
}

void epilog_flow(const Policy& policy, const slurm::JobEnv& job, const World& world) {
  world.attempt("the note of the job", [&] { Notes(policy.paths.notes).remove(job.job_id); });
  // How the job ended is only a hint that the node is worth checking.
  if (job.exit_status.value_or(0) == 0 && !job.tasks_killed) return;
  if (switched_off(policy)) {
    world.say(Level::info, fmt::format("nothing is checked: {} is there", policy.act.kill_switch));
    return;
  }
  const Memory memory(policy, world, job.node);
  const State state = memory.state();
  const double now_wall_s = world.clock.wall_s();
  // A time in the future was written before the clock went back.
  const double since_s = now_wall_s - state.last_epilog_wall_s;
  if (since_s >= 0 && since_s < policy.prolog.epilog_interval_s) return;
  // If the time cannot be stored, nothing is checked: otherwise every failed job would run the checks again.
  if (!memory.change([&](State& kept) { kept.last_epilog_wall_s = now_wall_s; })) return;
  look_and_drain(policy, job, world, memory, state);
}

void health_flow(const Policy& policy, const slurm::JobEnv& no_job, const World& world) {
  if (switched_off(policy)) {
    world.say(Level::info, fmt::format("nothing is checked: {} is there", policy.act.kill_switch));
    return;
  }
  const Memory memory(policy, world, no_job.node);
  look_and_drain(policy, no_job, world, memory, memory.state());
}

UndrainResult undrain_flow(const Policy& policy, const std::string& node, bool verified, const World& world) {
  const slurm::Node before = own_node(node, world);
  if (!before.is_drained_or_draining()) return {.status = kOk, .text = fmt::format("{} is not drained\n", node)};
  if (!is_ours(before)) {
    return {.status = kWarning,
            .text = fmt::format("{} was drained by {}: '{}'; that is not ours to take back\n", node,
                                before.reason_user.empty() ? "someone else" : plain_text(before.reason_user, 64),
                                plain_text(before.reason, kMaxReason))};
  }
  const std::string reason = plain_text(before.reason, kMaxReason);
  const Memory memory(policy, world, node);
  const State state = memory.state();
  std::string text;
  Examination seen;
  if (verified) {
    // Kernel messages before the drain led to it; only later ones count. Slurm sets the time of a reason anew when a
    // node that was rebooted comes back, or when somebody writes it again: it counts only for a drain that is not ours.
    const double drain_wall_s = memory.last_wall_s("drain", "").value_or(0);
    const bool is_known = drain_wall_s > memory.last_wall_s("undrain", "").value_or(0);
    const bool rebooted = before.reason.find(" : reboot") != std::string::npos;
    const double drained_wall_s = is_known || rebooted ? drain_wall_s : std::max(drain_wall_s, before.reason_wall_s);
    seen = look_at_node(policy, world, state, drained_wall_s <= world.clock.wall_s() ? drained_wall_s : 0);
    const std::vector<Finding> bad = draining(seen.findings, policy, nullptr);
    for (const Finding& finding : bad) text += plain_text(finding.str(), std::string::npos) + "\n";
    if (!bad.empty()) {
      return {.status = kCritical, .text = text + fmt::format("{} stays drained: {}\n", node, reason)};
    }
    const std::string why_not = not_verified(reason, seen.results);
    if (!why_not.empty()) {
      text = fmt::format("not verified, {}\n", plain_text(why_not, kMaxReason));
      return {.status = kCritical, .text = text + fmt::format("{} stays drained: {}\n", node, reason)};
    }
    text += fmt::format("{} checks ran, none found anything that drains\n", seen.results.size());
  }
  // Stored before the undrain: otherwise old log lines would still count, and the node would be drained again.
  const bool kept = memory.change([&](State& changed) {
    keep_counters(changed, seen.results);
    note_undrain(changed, Sysroot(policy.paths.sysroot), world.clock);
  });
  if (!kept) {
    throw Error("undrain.state", Blame::node,
                fmt::format("{} stays drained: that it is well now cannot be kept in '{}'", node, policy.paths.state));
  }
  const slurm::Node now = world.slurm->node(node);
  if (!is_ours(now) || plain_text(now.reason, kMaxReason) != reason) {
    return {.status = kWarning, .text = text + fmt::format("{} was changed in the meantime; left alone\n", node)};
  }
  world.slurm->resume(node);
  world.attempt("users' runs of ms-diag still count kernel messages from before the undrain",
                [&] { Notes(policy.paths.notes).publish_undrain(memory.state()); });
  world.say(Level::info, fmt::format("undrained {}{}, was: {}", node, verified ? ", verified" : "", reason));
  const std::string code = reason.substr(kReasonPrefix.size(), reason.find(' ') - kReasonPrefix.size());
  memory.remember_and_spool({.event = "undrain", .code = code, .message = reason, .strikes = state.strikes},
                            Tell::always);
  slurm::Node after;
  world.attempt("Slurm does not say whether the node is back", [&] { after = world.slurm->node(node); });
  const bool is_back = !after.is_drained_or_draining() && !after.has_state("DOWN") && !after.has_state("REBOOT");
  const std::string states = fmt::format("{}", fmt::join(after.states, "+"));
  return {.status = is_back ? kOk : kWarning,
          .text = text + fmt::format("{} is {}; it was drained for: {}\n", node,
                                     is_back ? "back" : "undrained, but Slurm says that it is " + states, reason)};
}

}  // namespace ms::health
