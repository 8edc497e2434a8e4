#include "driver/nodes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "driver/slurm_nodes.h"
#include "slurm/commands.h"
#include "slurm/hostlist.h"
#include "slurm/known_lines.h"

namespace ms::driver {
namespace {

constexpr double kNotYet_s = -1;
constexpr double kLookLimit_s = 300;  // an attempt waits so long for a look at a node
constexpr double kSilentSpare = 3;    // times what an agent may be silent for
constexpr std::size_t kWitnesses = 2;
constexpr double kTogether_s = 1;           // reports of all nodes come within it
constexpr double kBesideTraining_gbps = 1;  // what is looked for does not need more

}  // namespace

Nodes::Nodes(const DriverOptions& options, const std::string& dir, Agents& agents, Ledger& ledger)
    : options_(options),
      agents_(agents),
      ledger_(ledger),
      pool_(options.nodes, options.kept_for_last, options.segments),
      suspects_(options.diag, dir),
      network_(options.netcheck, dir) {
  for (const auto& [node, strikes] : ledger.strikes) pool_.remember(node, strikes);
  for (const auto& [node, why] : ledger.excluded) pool_.exclude(node, why);
  // A driver that was killed, or a start of the job before, may not have looked at them.
  if (ledger.attempts.empty() || !slurm::is_proof(ledger.attempts.back().cause)) return;
  for (const std::string& node : ledger.attempts.back().suspects) {
    if (!pool_.nodes().contains(node)) continue;
    pool_.suspect(node, ledger.attempts.back().why);
    broken_[node] = kNotYet_s;
  }
}

std::vector<std::string> Nodes::gone() const {
  std::vector<std::string> gone = pool_.with(NodeRole::lost);
  for (std::string& node : pool_.with(NodeRole::unusable)) gone.push_back(std::move(node));
  return gone;
}

void Nodes::hear(const std::string& node, const Report& report, double now_s) {
  heard_s_[node] = now_s;
  losses_.hear(node, report);
  if (report.clock_jump_s != 0) clock_jumped(node, report.clock_jump_s, now_s);
  if (report.number != 0) return;
  if (report.unheard.empty()) {
    changed_ = ledger_.unheard.erase(node) != 0 || changed_;
  } else if (ledger_.unheard.insert_or_assign(node, plain_text(report.unheard, 200)).second) {
    log::warn("driver", "no heartbeats of {}: {}", node, ledger_.unheard[node]);
    changed_ = true;
  }
}

void Nodes::stop() {
  suspects_.stop();
  network_.stop();
}

void Nodes::begin_work(const std::vector<std::string>& nodes) {
  if (std::ranges::any_of(nodes, [&](const std::string& node) { return network_.looks_at(node); })) network_.stop();
}

void Nodes::check_spares() {
  for (const auto& [node, state] : pool_.nodes()) {
    if (state.role == NodeRole::spare && agents_.has(node)) suspects_.look(node, options_.preflight_level);
  }
}

bool Nodes::awaits_broken(std::size_t working, double now_s) const {
  if (options_.diagnose_level == 0 || pool_.has_others(working)) return false;
  return std::ranges::any_of(broken_, [&](const auto& entry) {
    const auto& [node, since_s] = entry;
    const bool is_looked_at = pool_.nodes().at(node).role == NodeRole::suspect && agents_.has(node);
    return is_looked_at && (since_s == kNotYet_s || now_s - since_s < kLookLimit_s);
  });
}

void Nodes::ask_slurm(AttemptEvidence& evidence) {
  const bool refused = std::ranges::any_of(
      evidence.lines, [](const SaidLine& line) { return line.known->cause.starts_with(kSlurmCauses); });
  if (!refused && pool_.with(NodeRole::unusable).empty()) return;
  std::map<std::string, std::string> unusable;
  try {
    const slurm::Commands slurm({.conf = options_.slurm_conf, .deadline_s = 10});
    unusable = ask_unusable_nodes(slurm, static_cast<std::uint32_t>(options_.job), options_.nodes);
  } catch (const Error& error) { return log::warn("driver", "Slurm is not asked: {}", error.message()); }
  for (const std::string& node : pool_.with(NodeRole::unusable)) {
    if (!unusable.contains(node)) pool_.unbar(node);
  }
  for (const auto& [node, why] : unusable) {
    if (pool_.nodes().at(node).role == NodeRole::unusable) continue;
    log::warn("driver", "{} is unusable: {}", node, plain_text(why, 200));
    pool_.bar(node, why);
    const bool worked = std::ranges::find(evidence.nodes, node) != evidence.nodes.end();
    if (worked && std::ranges::find(evidence.lost, node) == evidence.lost.end()) evidence.lost.push_back(node);
  }
}

void Nodes::check_network(double now_s) {
  std::vector<std::string> nodes;
  for (const NodeRole role : {NodeRole::suspect, NodeRole::spare}) {
    for (const std::string& node : pool_.with(role)) {
      if (agents_.has(node)) nodes.push_back(node);
    }
  }
  network_.stop();  // one of a few suspects, whom all others join now
  if (nodes.size() >= NetworkCheck::kToldApart) network_.begin(nodes, NetworkCheck::kAsFastAsItGoes, now_s);
  waits_for_network_ = network_.busy();
}

void Nodes::take_network(const NetworkCheck::Result& result, std::size_t working) {
  const std::string names = slurm::fold_hostlist(result.nodes);
  const NetworkFound found = result.found.value_or(NetworkFound{});
  for (const NetworkFault& fault : found.faults) {
    const auto node = pool_.nodes().find(fault.node);
    if (node == pool_.nodes().end() || node->second.role > NodeRole::suspect) continue;
    const std::string why = fmt::format("ms-netcheck between {}: {}", names, fault.why);
    log::warn("driver", "{} is left out: {}", fault.node, why);
    leave_out(fault.node, why);
    if (waits_for_network_) ledger_.attempts.back().excluded.push_back(fault.node);
  }
  if (found.faults.empty()) {
    log::info("driver", "ms-netcheck between {} {}", names, result.found ? "finds no node at fault" : "could not look");
  }
  for (const std::string& node : result.nodes) {
    if (pool_.nodes().at(node).role != NodeRole::suspect) continue;
    if (waits_for_network_) {  // of all nodes: without a culprit, none of them is innocent
      if (!found.faults.empty()) clear(node);
    } else if (found.clear.contains(node)) {
      log::info("driver", "{} is found well: a spare", node);
      clear(node);
    } else {
      no_evidence(node,
                  result.found ? "ms-netcheck cannot tell whether the fault is its own"
                               : "ms-netcheck could not look at its network",
                  working);
    }
  }
  waits_for_network_ = false;
}

void Nodes::clear(const std::string& node) {
  pool_.clear(node);
  network_doubts_.erase(node);
  well_alone_.erase(node);
  changed_ = true;
}

// A suspect that nothing accuses and nothing clears has a second chance, and no third one while others can work.
void Nodes::no_evidence(const std::string& node, const std::string& why, std::size_t working) {
  const int strikes = ledger_.strikes[node];
  if (is_out_without_evidence(strikes, pool_.usable(), working)) {
    const std::string said = fmt::format("{} attempts ended for it, and {}", strikes, why);
    log::warn("driver", "{} is left out: {}", node, said);
    return leave_out(node, said);
  }
  log::info("driver", "{} is a spare, the last to be taken: {}", node, why);
  clear(node);
}

bool Nodes::awaits_spares(double now_s, std::size_t working) {
  std::set<std::string> doubted;
  bool is_known_soon = false;
  for (const std::string& node : pool_.with(NodeRole::spare)) {
    const auto heard = heard_s_.find(node);
    const bool was_heard = heard != heard_s_.end();
    if (agents_.has(node) && (!was_heard || now_s - heard->second < options_.limits.silent_s())) continue;
    doubted.insert(node);
    is_known_soon = is_known_soon || was_heard;
    if (!was_heard || now_s - heard->second < kSilentSpare * options_.limits.silent_s()) continue;
    const std::string why = fmt::format("its agent was silent for {:.1f} s", now_s - heard->second);
    log::warn("driver", "{} is lost: {}", node, why);
    pool_.lose(node, why);
    doubted.erase(node);
  }
  const std::size_t doubts = doubted.size();
  pool_.doubt(std::move(doubted));
  return doubts > 0 && is_known_soon && pool_.usable() < working + doubts;
}

std::vector<std::string> Nodes::take_drained(const Drained& drained, double now_s, double wall_s) {
  std::vector<std::string> idle;
  for (const auto& [node, why] : drained) {
    const NodeRole role = pool_.nodes().at(node).role;
    if (role > NodeRole::suspect) continue;
    if (role != NodeRole::works) {
      pool_.exclude(node, why);
      idle.push_back(node);
    }
    pool_.say(node, why);
    if (drained_.contains(node)) continue;
    drained_s_ = now_s;
    log::warn("driver", "{} is {}", node, plain_text(why, 200));
    ledger_.add({.at_s = wall_s, .code = "drain", .nodes = {node}, .text = fmt::format("{} is {}", node, why)});
    changed_ = true;
  }
  for (const auto& [node, why] : drained_) {
    if (drained.contains(node)) continue;
    pool_.say(node, "");
    heeded_.erase(node);
  }
  drained_ = drained;
  return idle;
}

std::vector<std::string> Nodes::drained_at_work(bool all) const {
  std::vector<std::string> nodes;
  for (const auto& [node, why] : drained_) {
    if (pool_.nodes().at(node).role == NodeRole::works && (all || !heeded_.contains(node))) nodes.push_back(node);
  }
  return nodes;
}

void Nodes::heed_drain(const std::string& node, bool is_replaced) {
  heeded_.insert(node);
  if (is_replaced) pool_.exclude(node, drained_.at(node));
}

void Nodes::clock_jumped(const std::string& node, double jump_s, double now_s) {
  if (jumped_.empty()) jumped_s_ = now_s;
  jumped_[std::llround(jump_s)].insert(node);
}

void Nodes::note_clocks(double now_s, double wall_s) {
  if (jumped_.empty() || now_s - jumped_s_ < kTogether_s) return;
  for (const auto& [jump_s, names] : std::exchange(jumped_, {})) {
    std::vector<std::string> nodes(names.begin(), names.end());
    std::string text = fmt::format("the clock of {} jumped by {:+} s", slurm::fold_hostlist(nodes), jump_s);
    log::warn("driver", "{}", text);
    ledger_.add({.at_s = wall_s, .code = "clock", .nodes = std::move(nodes), .text = std::move(text)});
  }
  changed_ = true;
}

std::optional<Alarm> Nodes::packet_loss(const std::vector<std::string>& working, const Watcher& watcher,
                                        double now_s) const {
  if (!watcher.is_slow(now_s)) return std::nullopt;
  const std::optional<LossyNode> lossy = losses_.lossy(working);
  if (!lossy) return std::nullopt;
  return Alarm{
      .kind = AlarmKind::packet_loss,
      .nodes = {lossy->node},
      .ranks = {},
      .fault_s = watcher.last_progress_s(),
      .why = fmt::format("no rank made progress for {:.1f} s; {}", now_s - watcher.last_progress_s(), lossy->why)};
}

void Nodes::leave_out(const std::string& node, const std::string& why) {
  pool_.exclude(node, why);
  ledger_.excluded[node] = why;
  changed_ = true;
}

std::string Nodes::readmit(const std::string& node) {
  if (ledger_.excluded.erase(node) == 0) return plain_text(node, 80) + " is not excluded from this run";
  ledger_.strikes.erase(node);
  pool_.readmit(node);
  changed_ = true;
  return node + " is checked, and is a spare if it is well";
}

// A node that works is given up only for a spare: where none is left, a run that makes steps is worth more, and a
// finding that all nodes have, such as one of the site's configuration, must not end it.
std::optional<Alarm> Nodes::take_finding(const std::string& node, const std::string& finding, bool trains,
                                         double now_s) {
  const auto found = pool_.nodes().find(node);
  if (found == pool_.nodes().end() || found->second.role > NodeRole::suspect) return std::nullopt;
  const std::string why = plain_text(finding, 200);
  if (found->second.role != NodeRole::works) {
    log::warn("driver", "{} is left out: {}", node, why);
    leave_out(node, why);
    return std::nullopt;
  }
  if (!trains) return std::nullopt;  // it says so again
  if (!pool_.can_replace({node})) {
    if (unheeded_.insert(node).second) log::warn("driver", "{} keeps working, there is no spare for it: {}", node, why);
    return std::nullopt;
  }
  return Alarm{.kind = AlarmKind::finding,
               .nodes = {node},
               .ranks = {},
               .fault_s = now_s,
               .why = fmt::format("ms-diag finds on {}: {}", node, why)};
}

void Nodes::accuse(const Judgement& judgement, bool all, double now_s) {
  for (const std::string& node : judgement.suspects) {
    if (judgement.cause == "node_lost") {
      if (pool_.nodes().at(node).role != NodeRole::unusable) pool_.lose(node, judgement.why);
    } else if (judgement.certain) {
      leave_out(node, judgement.why);
      ledger_.attempts.back().excluded.push_back(node);
    } else {
      pool_.suspect(node, judgement.why);
      if (judgement.says_broken) broken_[node] = now_s;
    }
    if (judgement.network && !all) network_doubts_.insert(node);
    if (!all && judgement.accuses) ++ledger_.strikes[node];  // who is looked at because all are is not accused
  }
}

void Nodes::check(double now_s, bool trains, std::size_t working) {
  for (auto& [node, since_s] : broken_) {
    if (since_s == kNotYet_s) since_s = now_s;
  }
  if (const std::optional<NetworkCheck::Result> result = network_.take(now_s)) take_network(*result, working);
  for (const std::string& node : pool_.with(NodeRole::suspect)) {
    // One that was away comes here too. The checks of a node would disturb those of the network.
    if (options_.diagnose_level > 0 && agents_.has(node) && !network_.busy() && !well_alone_.contains(node)) {
      suspects_.look(node, options_.diagnose_level);
    }
  }
  // A check would slow down a node at work, and its load makes the node look bad.
  suspects_.keep([&](const std::string& node) {
    const NodeRole role = pool_.nodes().at(node).role;
    return role == NodeRole::spare || role == NodeRole::suspect;
  });
  for (const Checkup& checkup : suspects_.take()) {
    const bool said_broken = broken_.erase(checkup.node) != 0;
    if (!checkup.well) {
      log::warn("driver", "{} is left out: {}", checkup.node, checkup.said);
      leave_out(checkup.node, checkup.said);
    } else if (said_broken && !checkup.looked) {
      ++ledger_.strikes[checkup.node];  // then its word counts
      no_evidence(checkup.node, checkup.said, working);
    } else if (network_doubts_.contains(checkup.node)) {
      log::info("driver", "{} {}; its network comes next", checkup.node, checkup.said);
      well_alone_.insert(checkup.node);
    } else {
      log::info("driver", "{} {}: a spare", checkup.node, checkup.said);
      clear(checkup.node);
    }
  }
  check_doubtful(now_s, trains, working);
}

// Suspects that are well by themselves are measured with each other and with a spare or two, while the others train.
void Nodes::check_doubtful(double now_s, bool trains, std::size_t working) {
  std::erase_if(well_alone_, [&](const std::string& node) {
    return pool_.nodes().at(node).role != NodeRole::suspect || !agents_.has(node);
  });
  if (well_alone_.empty() || !trains || network_.busy() || suspects_.busy()) return;
  std::vector<std::string> nodes(well_alone_.begin(), well_alone_.end());
  std::vector<std::string> spares = pool_.with(NodeRole::spare);
  std::erase_if(spares, [&](const std::string& node) { return !agents_.has(node); });
  std::ranges::stable_sort(spares, {}, [&](const std::string& node) { return pool_.nodes().at(node).strikes; });
  spares.resize(std::min(spares.size(), kWitnesses));
  nodes.insert(nodes.end(), spares.begin(), spares.end());
  network_.begin(nodes, kBesideTraining_gbps, now_s);
  if (network_.busy()) return;
  const std::set<std::string> alone = std::exchange(well_alone_, {});
  for (const std::string& node : alone) no_evidence(node, "no other node is idle to measure its network with", working);
}

}  // namespace ms::driver
