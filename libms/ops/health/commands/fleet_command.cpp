// ms-diag facts and ms-diag fleet: what of a node should be as on its peers, asked here or of many nodes.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <map>

#include "base/clock.h"
#include "base/print.h"
#include "base/text.h"
#include "base/user_path.h"
#include "health/act/state.h"
#include "health/checks/registry.h"
#include "health/commands/commands.h"
#include "health/commands/examine.h"
#include "health/commands/fleet.h"
#include "health/commands/remote.h"
#include "slurm/commands.h"
#include "slurm/hostlist.h"
#include "slurm/job_env.h"

namespace ms::health {
namespace {

constexpr double kDrainsSince_s = 90 * 86400.0;
constexpr std::size_t kMaxFactsBytes = std::size_t{256} << 20;  // some 30,000 nodes
constexpr double kFacts_s = 20;                                 // of one node: the checks of level 1, and files

int drains_since(const std::vector<HistoryEntry>& history, double since_wall_s) {
  int drains = 0;
  for (const HistoryEntry& entry : history) {
    if (entry.wall_s < since_wall_s) continue;
    if (entry.event == "drain") ++drains;
    if (entry.event == "withdrawn") drains = std::max(0, drains - 1);
  }
  return drains;
}

NodeFacts facts_here(const std::string& config) {
  const Policy policy = policy_for(config);
  const double now_wall_s = SystemClock().wall_s();
  NodeFacts node{.node = slurm::this_node(), .state_known = ::geteuid() == 0};
  if (node.state_known && ::access(policy.paths.state.c_str(), F_OK) == 0) {
    const StateDirectory directory(policy.paths.state);
    node.last_active_wall_s = directory.load().last_active_wall_s;
    node.drains = drains_since(directory.history(), now_wall_s - kDrainsSince_s);
  }
  node.report = examine({.config = config, .deadline_s = kFacts_s}).at(0);
  Evidence evidence(policy, now_wall_s, 0, {});
  node.facts = gather_facts(evidence);
  node.wall_s = SystemClock().wall_s();  // last: the asker compares it with the time of the answer
  return node;
}

std::vector<std::string> nodes_of(const Args& args, const Policy& policy) {
  if (!args.has("partition")) return slurm::expand_hostlist_or_throw(args.get("nodelist"));
  const std::string partition = args.get("partition");
  const slurm::Commands slurm({.scontrol = policy.paths.scontrol, .conf = policy.paths.slurm_conf, .deadline_s = 10});
  std::vector<std::string> names;
  for (const slurm::Node& node : slurm.nodes()) {
    if (std::find(node.partitions.begin(), node.partitions.end(), partition) != node.partitions.end())
      names.push_back(node.name);
  }
  if (names.empty()) throw user_error("fleet.partition", fmt::format("no node is in the partition '{}'", partition));
  return names;
}

void add_answer(FleetInput& input, const RemoteAnswer& answer) {
  std::string why = answer.why;
  if (why.empty()) {
    try {
      NodeFacts node = node_facts_from_json(answer.out);
      node.node = answer.node;  // as it was asked for, whatever it calls itself
      // The node looked at its clock between the question and the answer.
      input.clocks[node.node] = {node.wall_s - answer.answered_wall_s, node.wall_s - answer.asked_wall_s};
      input.nodes.push_back(std::move(node));
      return;
    } catch (const Error& error) { why = error.message(); }
  }
  input.silent.emplace_back(answer.node, why);
}

FleetInput ask_fleet(const Args& args, const Policy& policy) {
  const std::vector<std::string> nodes = nodes_of(args, policy);
  if (nodes.empty()) throw user_error("check.nodes", "the list of nodes is empty");
  RemoteCommand command{.ssh_config = args.get("ssh-config"), .words = {"facts"}, .deadline_s = kFacts_s};
  if (args.has("config")) command.words.insert(command.words.end(), {"--config", args.get("config")});
  FleetInput input;
  for (const RemoteAnswer& answer : ask_nodes(nodes, command)) add_answer(input, answer);
  return input;
}

// Lines of ms-diag facts, however they were collected: srun ms-diag facts.
FleetInput read_fleet(const std::string& from) {
  const std::string text =
      from == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : read_user_file(from, kMaxFactsBytes);
  FleetInput input;
  std::map<std::string, std::size_t> line_of;  // by node
  std::size_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    try {
      NodeFacts node = node_facts_from_json(line);
      const auto [before, is_new] = line_of.try_emplace(node.node, number);
      if (!is_new) {
        throw user_error("fleet.twice", fmt::format("{} has answered in line {} already; only that line counts",
                                                    node.node, before->second));
      }
      input.nodes.push_back(std::move(node));
    } catch (const Error& error) { input.silent.emplace_back(fmt::format("line {}", number), error.message()); }
  }
  return input;
}

}  // namespace

int facts_command(const Args& args) {
  write_out(to_json(facts_here(args.get("config"))));
  return 0;
}

int fleet_command(const Args& args) {
  const int sources = static_cast<int>(args.has("nodelist")) + static_cast<int>(args.has("partition")) +
                      static_cast<int>(args.has("from"));
  if (sources != 1) {
    throw user_error("fleet.nodes", "which nodes? give one of --nodelist, --partition and --from",
                     "ms-diag fleet -w 'node[01-16]'");
  }
  const Policy policy = policy_for(args.get("config"));
  FleetInput input = args.has("from") ? read_fleet(args.get("from")) : ask_fleet(args, policy);
  input.clock_limit_s = policy.limits.clock_error_s;
  const Fleet fleet = compare_fleet(input);
  write_out(args.has("json") ? fleet_json(fleet) : fleet_text(fleet));
  if (args.has("html")) write_user_file(args.get("html"), fleet_html(fleet));
  return fleet.nagios_status();
}

}  // namespace ms::health
