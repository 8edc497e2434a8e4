// slurm.node: what Slurm thinks of this node, and how many of its nodes are down.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/busy.h"
#include "slurm/commands.h"
#include "slurm/job_env.h"

namespace ms::diag {
namespace {

constexpr double kScontrol_s = 8;
constexpr double kMostDown_percent = 25;  // of the cluster: then it is no matter of single nodes

bool has_one_of(const slurm::Node& node, std::initializer_list<std::string_view> states) {
  return std::ranges::any_of(states, [&](std::string_view state) { return node.has_state(state); });
}

// A node that Slurm switches off, on again or reboots does not answer and is well.
bool is_down(const slurm::Node& node) {
  return has_one_of(node, {"DOWN", "FAIL", "NOT_RESPONDING", "UNKNOWN"}) &&
         !has_one_of(node, {"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "REBOOT_ISSUED", "FUTURE"});
}

health::Result ask_slurm(health::Evidence& evidence) {
  const health::PathsConfig& paths = evidence.policy().paths;
  if (::access(paths.scontrol.c_str(), X_OK) != 0) {
    return health::skipped(fmt::format("there is no {} (paths.scontrol)", paths.scontrol));
  }
  const slurm::Commands slurm({.scontrol = paths.scontrol, .conf = paths.slurm_conf, .deadline_s = kScontrol_s});
  // Only the first process of a job step asks for the whole cluster: a thousand answers of all nodes would be too much
  // to ask of slurmctld.
  const char* const task = std::getenv("SLURM_PROCID");
  const bool asks_for_all = task == nullptr || std::string_view(task) == "0";
  const std::string name = slurm::this_node();
  const health::Result unknown_here = health::skipped(fmt::format("Slurm knows no node {}", printable(name, 64)));
  std::vector<slurm::Node> nodes;
  try {
    nodes = asks_for_all ? slurm.nodes() : std::vector{slurm.node(name)};
  } catch (const Error& error) {
    // Words of scontrol's and of Commands::node(): slurmctld has answered, and not about this node.
    for (const std::string& words : {fmt::format("Node {} not found", name), std::string("does not name this node")})
      if (error.message().find(words) != std::string::npos) return unknown_here;
    if (health::control_is_late()) return health::not_measured("scontrol did not answer on this busy node");
    return health::judged({about("slurmctld", Severity::warning, error.message())});
  }
  if (nodes.empty()) return health::skipped("scontrol show node did not answer as expected: it names no node");
  std::vector<Finding> findings;
  const auto own = std::ranges::find_if(nodes, [&](const slurm::Node& node) { return node.name == name; });
  if (own == nodes.end()) return unknown_here;
  const std::string state = fmt::format("{}", fmt::join(own->states, "+"));
  if (is_down(*own) || own->is_drained_or_draining()) {
    findings.push_back(
        about(name, Severity::warning,
              fmt::format("is {}{}", state, own->reason.empty() ? "" : ": " + plain_text(own->reason, 120))));
  }
  const auto down = static_cast<double>(std::ranges::count_if(nodes, is_down));
  const double percent = 100 * down / static_cast<double>(nodes.size());
  if (nodes.size() > 1 && percent > kMostDown_percent) {
    findings.push_back(about("cluster", Severity::warning,
                             fmt::format("{:.0f} of {} nodes are down", down, nodes.size()), percent, kMostDown_percent,
                             "%"));
  }
  health::Result result = health::judged(std::move(findings));
  result.note = fmt::format("{} is {}{}", name, state,
                            asks_for_all ? fmt::format(", {:.0f} of {} nodes are down", down, nodes.size()) : "");
  return result;
}

}  // namespace

extern constinit const health::Check kSlurmNode = {
    .code = "slurm.node",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "slurmctld does not respond, or reports this node or many nodes as down",
    .needs = "scontrol (paths.scontrol)",
    .deadline_s = 15,
    .blame = Blame::slurm,
    .proved = "a fake scontrol",
    .on_hang = std::nullopt,
    .explain =
        "Queries the nodes of slurmctld. It warns if there is no response, if this node is down or drained, and if "
        "more than a quarter of all nodes are down; nodes that Slurm powers down, up or reboots do not count. A "
        "response "
        "without this node is not judged. In a job step, the first process queries all nodes, the others only their "
        "own. It is not a passive check, because queries in every prolog would load slurmctld when a large job starts.",
    .remedy =
        "scontrol ping, scontrol show node and sinfo -R show the details; slurmd's log shows why it does not "
        "register.",
    .run = ask_slurm};

}  // namespace ms::diag
