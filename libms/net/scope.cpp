#include "net/scope.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/file.h"
#include "slurm/hostlist.h"
#include "slurm/topology.h"

namespace ms::net {

std::vector<std::string> nodes_in_scope(const std::string& named, const std::string& job, const std::string& launch) {
  const std::vector<std::string> of_job = slurm::expand_hostlist_or_throw(job);
  std::vector<std::string> nodes = named.empty() ? of_job : slurm::expand_hostlist_or_throw(named);
  std::vector<std::string> unique = nodes;
  std::ranges::sort(unique);
  unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
  if (unique.size() != nodes.size()) throw user_error("net.nodes", "--nodes names a node more than once");
  if (nodes.empty()) {
    throw user_error("net.nodes", "which nodes? this is not run inside a Slurm job",
                     "run it inside a job, or give --nodes and --launch 'ssh {node} {agent}'");
  }
  if (launch == "srun" && of_job.empty()) {
    throw user_error("net.job", "srun would have to wait for an allocation: this is not run inside a Slurm job",
                     "salloc -N 8 ms-netcheck locate, or --launch 'ssh {node} {agent}'");
  }
  for (const std::string& node : nodes) {
    if (!of_job.empty() && std::ranges::find(of_job, node) == of_job.end())
      throw user_error("net.job", fmt::format("{} is not a node of this job: its links may be in use", node));
  }
  return nodes;
}

Layout layout_of(const std::vector<std::string>& nodes, const std::string& from) {
  std::string text;
  if (from == "slurm") {
    const slurm::ToldTopology told = slurm::ask_topology([](const char* name) { return std::getenv(name); });
    if (!told.why_not.empty()) throw Error("slurm.topology", Blame::slurm, told.why_not);
    text = told.text;
  } else {
    text = read_file(from, Blame::user);
  }
  const slurm::Topology topology = slurm::parse_topology(text, from);
  Layout layout;
  std::map<int, int> groups;  // switch, or below 0: a node of none -> group
  for (const std::string& node : nodes) {
    const auto leaf = topology.leaf_of.find(node);
    const bool known = leaf != topology.leaf_of.end();
    const int key = known ? leaf->second : -1 - static_cast<int>(groups.size());
    const auto [group, is_new] = groups.try_emplace(key, static_cast<int>(groups.size()));
    if (is_new) layout.switches.push_back(known ? topology.switches[static_cast<std::size_t>(key)].name : "of " + node);
    layout.group_of.push_back(group->second);
  }
  return layout;
}

}  // namespace ms::net
