// Carries out what plan.h says: asks Slurm, runs commands on nodes by ssh, and keeps the states, the audit log and the
// bundles in one directory.
#include "health/repair/repair.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "base/lock_file.h"
#include "base/print.h"
#include "base/text.h"
#include "base/utc.h"
#include "health/act/cap.h"
#include "health/act/decide.h"
#include "health/act/flow.h"
#include "health/act/load_policy.h"
#include "health/act/prolog.h"
#include "health/act/remedies.h"
#include "health/act/spool.h"
#include "health/checks/registry.h"
#include "health/commands/examine.h"
#include "health/commands/golden.h"
#include "health/commands/remote.h"
#include "health/repair/bundle.h"
#include "health/repair/local.h"
#include "slurm/commands.h"
#include "slurm/hostlist.h"
#include "slurm/job_env.h"

namespace ms::health {
namespace {

constexpr std::size_t kStepsAtATime = 64;
constexpr std::size_t kMaxRepairBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxBundleBytes = std::size_t{1} << 30, kMaxWhy = 300;
constexpr double kAnswer_s = 30;
constexpr double kRepairLock_s = 5;  // one that was killed while it started a program keeps it for a moment
constexpr const char* kAudit = "audit.jsonl";
constexpr int kUnknown = 3;  // of Nagios

class RepairSite {
 public:
  RepairSite(const Args& args, Policy policy)
      : policy_(std::move(policy)),
        apply_(args.has("apply")),
        once_(args.has("once")),
        ssh_config_(args.get("ssh-config")),
        deadline_s_(args.get_seconds("deadline")) {
    if (!apply_ && ::access(policy_.repair.state.c_str(), F_OK) != 0) return;
    directory_ = open_own_directory(policy_.repair.state, 0700, 0077, refusal_);
    if (!apply_) return;
    lock_ = lock_at(directory_, "lock", kRepairLock_s, refusal_);
  }

  // Returns a Nagios status. Throws what Slurm's calls throw: nothing was changed then.
  int pass() {
    if (::access(policy_.act.kill_switch.c_str(), F_OK) == 0) {
      print_out("nothing is done: {} is there\n", policy_.act.kill_switch);
      return 0;
    }
    users_ = drain_users(commands().config());
    std::vector<slurm::Node> nodes = commands().nodes();
    heard_ = false;
    std::map<std::string, Repair> repairs = load(nodes);
    if (look(nodes, repairs)) nodes = commands().nodes();
    std::vector<Step> steps = plan_now(repairs, nodes);
    if (!steps.empty() && !is_heard(steps)) return kUnknown;
    if (apply_) {
      carry_out(steps, nodes);
      repairs = load(nodes);
    } else {
      for (Step& step : steps) {  // so that the remedy is shown, too
        if (step.act == Act::gather) repairs[step.repair.node] = done(step, {Outcome3::good, "drained"});
      }
      for (const Step& step : plan_now(repairs, nodes)) {
        print_out("{}: would do: {}; {}\n", step.repair.node, step.event, step.repair.reason);
      }
    }
    return show(repairs, nodes);
  }

 private:
  // Whether ssh reaches any node. Where it reaches none, the fault is more likely here than on all of them: nothing may
  // be concluded of a node, and nothing is done to one.
  bool is_heard(const std::vector<Step>& steps) {
    if (heard_) return true;
    std::vector<std::string> names;
    for (const Step& step : steps) names.push_back(step.repair.node);
    std::string why;
    for (const RemoteAnswer& answer :
         ask_nodes(names, {.ssh_config = ssh_config_, .words = {"--version"}, .deadline_s = kAnswer_s})) {
      heard_ = heard_ || answer.why.empty();
      if (why.empty()) why = answer.why;
    }
    if (!heard_)
      print_err("ms-diag: warning: nothing is done: ssh does not reach {}: {}\n", slurm::fold_hostlist(names),
                plain_text(why, kMaxWhy));
    return heard_;
  }

  slurm::Commands commands() const {
    return slurm::Commands(
        {.scontrol = policy_.paths.scontrol, .conf = policy_.paths.slurm_conf, .deadline_s = deadline_s_});
  }

  std::vector<Step> plan_now(const std::map<std::string, Repair>& repairs,
                             const std::vector<slurm::Node>& nodes) const {
    std::vector<Step> steps = plan(repairs, nodes, policy_.repair, users_, SystemClock().wall_s());
    std::erase_if(steps, [&](const Step& step) { return damaged_.contains(step.repair.node); });
    return steps;
  }

  Repair done(const Step& step, const Verdict& verdict) const {
    return after(step, verdict.outcome, plain_text(verdict.why, kMaxWhy), policy_.repair, SystemClock().wall_s());
  }

  // Without a readable state file it is unknown what was done on the node: leave it alone.
  std::map<std::string, Repair> load(const std::vector<slurm::Node>& nodes) {
    std::map<std::string, Repair> repairs;
    for (const slurm::Node& node : nodes) {
      if (!directory_) break;
      try {
        const auto text = read_at(directory_, node.name + ".json", kMaxRepairBytes, refusal_);
        if (text) repairs[node.name] = repair_from_json(*text);
        damaged_.erase(node.name);
      } catch (const Error& error) {
        damaged_.insert(node.name);
        print_err("ms-diag: warning: {} is left alone: {}\n", node.name, error.message());
      }
    }
    return repairs;
  }

  void save(const Repair& repair) const {
    write_at(directory_, repair.node + ".json", to_json(repair), 0600, refusal_);
  }

  void audit(const std::string& node, const std::string& event, const std::string& why, const std::string& reason) {
    const Json line{
        {"time", utc_text(SystemClock().wall_s())}, {"node", node}, {"event", event}, {"why", why}, {"reason", reason}};
    const std::lock_guard guard(audit_);
    append_at(directory_, kAudit, line.dump_ascii() + "\n", refusal_);
    print_out("{}: {}{}{}\n", node, event, why.empty() ? "" : ": ", why);
  }

  // Tells people, by ms-diag notify on this host. A refusal comes again with every pass, and is told once.
  void tell(const std::string& kind, const std::string& node, const std::string& reason, const std::string& why) {
    const std::lock_guard guard(audit_);
    spool_for_people(policy_.paths.spool, {.wall_s = SystemClock().wall_s(),
                                           .kind = kind,
                                           .node = node,
                                           .code = code_of(reason),
                                           .message = plain_text(why, kMaxWhy)});
  }

  // Level 1 on the nodes in service; drains by the rules of a prolog. Returns whether it drained any.
  bool look(const std::vector<slurm::Node>& nodes, const std::map<std::string, Repair>& repairs) {
    std::vector<std::string> names;
    for (const slurm::Node& node : nodes) {
      // The plan is to see that a released node is in service before it is drained again.
      const auto kept = repairs.find(node.name);
      if (kept != repairs.end() && kept->second.stage == Stage::released) continue;
      if (is_in_service(node) && !is_slurms(node) && drain_step(node) == DrainStep::drain) names.push_back(node.name);
    }
    bool any = false;
    for (const Report& report : run_remote(names, {.ssh_config = ssh_config_})) {
      if (const std::string why = unreached(report); !why.empty()) {
        if (unreached_.insert(report.node).second)
          print_err("ms-diag: warning: {} is not looked at: {}\n", report.node, plain_text(why, kMaxWhy));
        continue;
      }
      heard_ = true;
      unreached_.erase(report.node);
      const auto node = std::ranges::find(nodes, report.node, &slurm::Node::name);
      const std::vector<Finding> bad = draining(report.findings(), policy_, nullptr, has_jobs(*node));
      if (bad.empty()) continue;
      const std::string reason = drain_reason(bad);
      if (!apply_ || !policy_.may_act()) {
        print_out("{}: would drain{}: {}\n", report.node, apply_ ? " (mode is not act)" : "", reason);
        continue;
      }
      SystemClock clock;
      const Drain drain = drain_below_cap(operators_world(policy_, clock), policy_.act, report.node, reason);
      const bool is_drained = drain.end == DrainEnd::drained;
      audit(report.node, is_drained ? "drain" : "no drain", drain.why, reason);
      if (is_drained) tell("drain", report.node, reason, reason);
      if (drain.end == DrainEnd::above_cap || drain.end == DrainEnd::withdrawn)
        tell("withdrawn", report.node, reason, drain.why);
      any = true;
    }
    return any;
  }

  // Each step in a thread: tests take minutes, and other nodes need not wait for them.
  void carry_out(const std::vector<Step>& steps, const std::vector<slurm::Node>& nodes) {
    std::atomic<std::size_t> next{0};
    std::vector<std::jthread> workers;
    for (std::size_t i = 0; i < std::min(kStepsAtATime, steps.size()); ++i) {
      workers.emplace_back([&] {
        for (std::size_t at = next++; at < steps.size(); at = next++) {
          try {
            carry_out(steps[at], nodes);
          } catch (const std::exception& error) {  // of our own directory: the next pass does the step again
            print_err("ms-diag: warning: {}: {}\n", steps[at].repair.node, error.what());
          }
        }
      });
    }
  }

  void carry_out(const Step& step, const std::vector<slurm::Node>& nodes) {
    const Repair& repair = step.repair;
    const bool touches = step.act != Act::none && step.act != Act::gather && step.act != Act::bundle;
    // Minutes may have passed since the plan was made.
    if (touches && !may_touch(repair, commands().node(repair.node), users_)) return;
    if (touches && !commands().jobs_on(repair.node).empty()) return;
    save(repair);
    audit(repair.node, step.event, step.act == Act::none ? repair.why : "", repair.reason);
    const auto record = std::ranges::find(nodes, repair.node, &slurm::Node::name);
    if (step.act == Act::none) {
      // The node has said so itself, on its own spool, of a drain that it made.
      const bool is_back = repair.stage == Stage::well && !record->is_drained_or_draining();
      if (is_back && last_event(policy_.paths.spool, repair.node) == "drain")
        tell("undrain", repair.node, repair.reason, repair.why);
      return;
    }
    Verdict verdict;
    try {
      verdict = act(step, *record);
    } catch (const Error& error) { verdict = {Outcome3::unknown, error.message()}; }
    const Repair kept = done(step, verdict);
    save(kept);
    audit(repair.node, fmt::format("stage {}", to_string(kept.stage)), plain_text(verdict.why, kMaxWhy), repair.reason);
    if (kept.stage == Stage::bundled) tell("bundled", repair.node, repair.reason, verdict.why);
  }

  Verdict act(const Step& step, const slurm::Node& record) const {
    switch (step.act) {
      case Act::gather:
        write_at(directory_, step.repair.node + ".before.tar", evidence("before", step.repair, record), 0600, refusal_);
        return {Outcome3::good, step.repair.why};
      case Act::remedy: return use_remedy(step.repair);
      case Act::reboot: return reboot(step.repair);
      case Act::redrain:
        commands().drain(step.repair.node, rebooted_reason(step.repair));
        return {Outcome3::good, "rebooted"};
      case Act::test: return test(step.repair);
      case Act::undrain: return undrain(step.repair);
      case Act::bundle: return bundle(step.repair, record);
      case Act::none: break;
    }
    return {};
  }

  RemoteAnswer ask(const std::string& node, const std::string& program, std::vector<std::string> words,
                   double deadline_s) const {
    return ask_nodes(
        {node},
        {.program = program, .ssh_config = ssh_config_, .words = std::move(words), .deadline_s = deadline_s})[0];
  }

  Verdict use_remedy(const Repair& repair) const {
    const Remedy* remedy = find_remedy(repair.remedy);
    if (remedy == nullptr) return {Outcome3::bad, fmt::format("there is no remedy {} any more", repair.remedy)};
    const double deadline_s = kAnswer_s + remedy->deadline_s * static_cast<double>(remedy->commands.size() + 1);
    const RemoteAnswer answer =
        ask(repair.node, "", {"repair", "--here", repair.remedy, "--node", repair.node}, deadline_s);
    if (!answer.why.empty()) return {Outcome3::unknown, answer.why};
    return {answer.status == 0 ? Outcome3::good : answer.status == 2 ? Outcome3::bad : Outcome3::unknown, answer.out};
  }

  Verdict reboot(const Repair& repair) const {
    const slurm::Config config = commands().config();
    const auto program = config.find("RebootProgram");
    if (program == config.end() || program->second.empty()) return {Outcome3::bad, "Slurm has no RebootProgram"};
    if (slurm::number_of(config, "ReturnToService", 0) == 2) {
      return {Outcome3::bad, "with ReturnToService=2 the node would be back in service before the tests"};
    }
    commands().reboot(repair.node, repair.reason);
    return {Outcome3::good, "asked for"};
  }

  Verdict test(const Repair& repair) const {
    RunRequest request{.level = repair.stage == Stage::test2 ? 2 : 3, .only = policy_.repair.checks};
    request.nodes = {repair.node};
    request.ssh_config = ssh_config_;
    if (request.level == 3) request.asked.soak_s = policy_.repair.soak_s;
    if (!repair.attempts.empty()) request.since_wall_s = repair.attempts.back().wall_s;
    const Verdict result = verdict(examine(request)[0], repair.reason);
    if (result.outcome != Outcome3::good || policy_.repair.golden.empty() || request.level == 2) return result;
    const Golden golden = golden_from_json(read_file(policy_.repair.golden, Blame::user), policy_.repair.golden);
    request.level = 2;
    const GoldenComparison compared =
        compare_golden(golden, {repair.node}, [&](const std::vector<std::string>&, const std::string& only) {
          request.only = only;
          return examine(request);
        });
    if (!compared.accused.empty()) return {Outcome3::bad, "slower than its peers: " + comparison_text(compared)};
    return compared.nodes == 0 ? Verdict{Outcome3::unknown, comparison_text(compared)} : result;
  }

  Verdict undrain(const Repair& repair) const {
    const auto slurm = commands();
    if (slurm.node(repair.node).is_drained_or_draining()) {
      const RemoteAnswer answer = ask(repair.node, "", {"undrain", "--node", repair.node}, kAnswer_s + kAnswer_s);
      const bool stays = !answer.why.empty() || slurm.node(repair.node).is_drained_or_draining();
      if (stays) return {Outcome3::unknown, answer.why.empty() ? answer.out : answer.why};
    }
    // A reboot leaves DOWN behind, with our reason.
    const slurm::Node left = slurm.node(repair.node);
    if (left.has_state("DOWN") && !left.is_drained_or_draining() && may_touch(repair, left, users_))
      slurm.set_up(left.name);
    return {Outcome3::good, "passed the tests"};
  }

  std::string evidence(const std::string& when, const Repair& repair, const slurm::Node& record) const {
    const double now_wall_s = SystemClock().wall_s();
    std::string states;
    for (const std::string& state : record.states) states += (states.empty() ? "" : "+") + state;
    std::string files = tar_file(
        when + "/slurm.txt",
        fmt::format("{} {} Reason={} [{}]\n", record.name, states, record.reason, record.reason_user), now_wall_s);
    const std::string slurmd_log = slurmd_log_of(commands().config(), record);
    for (const EvidenceRow& row : evidence_rows(policy_.paths.nvidia_smi, slurmd_log)) {
      const RemoteAnswer answer = ask(repair.node, row.program, row.words, 2 * kAnswer_s);
      files += tar_file(fmt::format("{}/{}", when, row.file),
                        answer.why.empty() ? answer.out : fmt::format("no answer: {}\n", answer.why), now_wall_s);
    }
    return files;
  }

  Verdict bundle(const Repair& repair, const slurm::Node& record) const {
    std::string whole = read_at(directory_, repair.node + ".before.tar", kMaxBundleBytes, refusal_).value_or("");
    whole += evidence("after", repair, record);
    std::string lines;
    const std::string ours = fmt::format("\"node\":\"{}\"", repair.node);
    for (const std::string& line : split(read_at(directory_, kAudit, kMaxBundleBytes, refusal_).value_or(""), '\n')) {
      if (line.find(ours) != std::string::npos) lines += line + "\n";
    }
    const double now_wall_s = SystemClock().wall_s();
    whole += tar_file(kAudit, lines, now_wall_s) + tar_file("repair.json", to_json(repair), now_wall_s) + tar_end();
    write_at(directory_, repair.node + ".tar", whole, 0600, refusal_);
    return {Outcome3::good,
            fmt::format("{}; {}/{}.tar is for the ticket", repair.why, policy_.repair.state, repair.node)};
  }

  // Says how the nodes are; the service says it in the audit log alone.
  int show(const std::map<std::string, Repair>& repairs, const std::vector<slurm::Node>& nodes) const {
    int status = 0;
    for (const auto& [name, repair] : repairs) {
      if (repair.stage == Stage::well) continue;
      if (repair.stage != Stage::released) status = std::max(status, repair.stage == Stage::bundled ? 2 : 1);
      if (!once_) continue;
      const auto node = std::ranges::find(nodes, name, &slurm::Node::name);
      const bool waits = repair.stage != Stage::bundled && node != nodes.end() && has_jobs(*node);
      print_out("{}: {}, {}{}\n", name, to_string(repair.stage), repair.why, waits ? "; it waits for its jobs" : "");
    }
    return status == 0 && !unreached_.empty() ? kUnknown : status;
  }

  Policy policy_;
  bool apply_, once_;
  std::vector<std::string> users_;   // whose drains are ours
  bool heard_ = false;               // a node has answered in this pass
  std::set<std::string> unreached_;  // nodes of which it was said that they do not answer
  std::string ssh_config_;
  double deadline_s_;
  Refusal refusal_{.kind = "repair.state"};
  UniqueFd directory_, lock_;
  std::set<std::string> damaged_;
  std::mutex audit_;  // guards the end of the audit log
};

}  // namespace

int repair_command(const Args& args) {
  const bool as_root = ::geteuid() == 0 && (args.has("apply") || args.has("here"));
  const std::string file = args.has("config") ? args.get("config") : kPolicyPath;
  const bool has_file = args.has("config") || ::access(kPolicyPath, F_OK) == 0;
  const Policy policy = as_root && has_file ? load_policy_as_root(file) : policy_for(args.get("config"));
  if (args.has("here")) {
    if (args.has("apply") || args.has("once")) throw user_error("repair.form", "--here takes no --apply and no --once");
    return use_remedy_here(policy, args.has("node") ? args.get("node") : slurm::this_node(), args.get("here"));
  }
  if (args.has("node")) throw user_error("repair.form", "--node goes with --here");
  RepairSite site(args, policy);
  if (args.has("once")) return site.pass();
  for (SystemClock clock;; clock.sleep_s(policy.repair.interval_s)) {
    try {
      site.pass();
    } catch (const Error& error) { print_err("ms-diag: warning: nothing was changed: {}\n", error.message()); }
  }
}

}  // namespace ms::health
