// The checks of a driver: of all nodes before the first attempt, of suspects, of the network between them, and of what
// Slurm says of nodes.
#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "driver/driver.h"
#include "driver/slurm_nodes.h"
#include "slurm/commands.h"

namespace ms::driver {
namespace {

constexpr double kSilentSpare = 3;  // times what an agent may be silent for

}  // namespace

// Spares too: a spare that is bad is found here, and not when it is needed.
void Driver::begin_checks(double now_s) {
  phase_ = Phase::checking;
  phase_s_ = now_s;
  if (options_.preflight_level == 0) return;
  for (const auto& [node, state] : pool_.nodes()) {
    if (state.role == NodeRole::spare && agents_.has(node)) suspects_.look(node, options_.preflight_level);
  }
}

// Where Slurm refused something, or did before: asks which nodes it would start ranks on. Nothing trains meanwhile.
void Driver::ask_slurm(AttemptEvidence& evidence) {
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
    const bool worked = std::ranges::find(nodes_, node) != nodes_.end();
    if (worked && std::ranges::find(evidence.lost, node) == evidence.lost.end()) evidence.lost.push_back(node);
  }
}

// Where no node stands out, the network between them may be at fault. To go on with any of them would end the same way,
// so the next attempt waits for what ms-netcheck finds.
void Driver::check_network(double now_s) {
  std::vector<std::string> nodes;
  for (const NodeRole role : {NodeRole::suspect, NodeRole::spare}) {
    for (const std::string& node : pool_.with(role)) {
      if (agents_.has(node)) nodes.push_back(node);
    }
  }
  network_.begin(nodes, now_s);
  waits_for_network_ = network_.busy();
}

void Driver::take_network(const NetworkCheck::Result& found) {
  if (!found.faults || found.faults->empty()) {
    return log::info("driver", "ms-netcheck {}", found.faults ? "finds no node at fault" : "could not look");
  }
  for (const NetworkFault& fault : *found.faults) {
    if (!pool_.nodes().contains(fault.node)) continue;
    log::warn("driver", "{} is left out: {}", fault.node, fault.why);
    leave_out(fault.node, fault.why);
    entry().excluded.push_back(fault.node);
  }
  for (const std::string& node : found.nodes) pool_.clear(node);
  save();
}

// Nobody else looks whether spares are still there, and an attempt with a dead node costs more than one without it.
void Driver::lose_silent_spares(double now_s) {
  for (const std::string& node : pool_.with(NodeRole::spare)) {
    const auto heard = heard_s_.find(node);
    if (heard == heard_s_.end() || now_s - heard->second < kSilentSpare * options_.limits.silent_s()) continue;
    const std::string why = fmt::format("its agent was silent for {:.1f} s", now_s - heard->second);
    log::warn("driver", "{} is lost: {}", node, why);
    pool_.lose(node, why);
  }
}

// Packets that are lost accuse a node only of what they do to the run.
std::optional<Alarm> Driver::packet_loss(double now_s) const {
  if (!watcher_->is_slow(now_s)) return std::nullopt;
  const std::optional<LossyNode> lossy = losses_.lossy(nodes_);
  if (!lossy) return std::nullopt;
  return Alarm{.kind = AlarmKind::packet_loss,
               .nodes = {lossy->node},
               .ranks = {},
               .fault_s = watcher_->last_progress_s(),
               .why = fmt::format("no rank got on for {:.1f} s; {}", now_s - watcher_->last_progress_s(), lossy->why)};
}

void Driver::leave_out(const std::string& node, const std::string& why) {
  pool_.exclude(node, why);
  ledger_.excluded[node] = why;
}

// A node that works is given up only for a spare: where none is left, a run that makes steps is worth more, and a
// finding that all nodes have, such as one of the site's configuration, must not end it.
void Driver::take_finding(const std::string& node, const std::string& finding) {
  const auto found = pool_.nodes().find(node);
  if (found == pool_.nodes().end() || found->second.role > NodeRole::suspect) return;
  const std::string why = plain_text(finding, 200);
  if (found->second.role != NodeRole::works) {
    log::warn("driver", "{} is left out: {}", node, why);
    leave_out(node, why);
    return save();
  }
  if (phase_ != Phase::running) return;  // it says so again
  if (pool_.with(NodeRole::spare).empty()) {
    if (unheeded_.insert(node).second) log::warn("driver", "{} works on, there is no spare for it: {}", node, why);
    return;
  }
  const double now_s = clock_.now_s();
  alarm({.kind = AlarmKind::finding,
         .nodes = {node},
         .ranks = {},
         .fault_s = now_s,
         .why = fmt::format("ms-diag finds on {}: {}", node, why)},
        now_s);
}

void Driver::check_suspects(double now_s) {
  if (const std::optional<NetworkCheck::Result> found = network_.take(now_s)) take_network(*found);
  for (const std::string& node : pool_.with(NodeRole::suspect)) {
    // One that was away comes here too. The checks of a node would disturb those of the network.
    if (options_.diagnose_level > 0 && agents_.has(node) && !network_.busy()) {
      suspects_.look(node, options_.diagnose_level);
    }
  }
  for (const Checkup& checkup : suspects_.take()) {
    if (checkup.well) {
      log::info("driver", "{} is found well: a spare", checkup.node);
      pool_.clear(checkup.node);
    } else {
      log::warn("driver", "{} is left out: {}", checkup.node, checkup.said);
      leave_out(checkup.node, checkup.said);
    }
    save();
  }
}

}  // namespace ms::driver
