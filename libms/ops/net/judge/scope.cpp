#include "net/judge/scope.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/file.h"
#include "base/user_path.h"
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

slurm::Topology read_topology(const std::string& from) {
  constexpr std::size_t kMostFile_bytes = std::size_t{64} << 20;
  if (from != "slurm") {
    // A file whose lines are missing would be another topology: what cannot be read is refused.
    return slurm::parse_topology(read_file(from, Blame::user), from, [&](const std::string& name) {
      return read_user_file(slurm::included_path(from, name), kMostFile_bytes);
    });
  }
  const slurm::ToldTopology told = slurm::ask_topology([](const char* name) { return std::getenv(name); });
  if (!told.why_not.empty()) throw Error("slurm.topology", Blame::slurm, told.why_not);
  return slurm::parse_topology(told.text, from);
}

Layout layout_of(const std::vector<std::string>& nodes, const slurm::Topology& topology) {
  Layout layout;
  std::vector<int> numbers;   // of our switches, in the topology; kNone: of a node that is under none
  std::map<int, int> placed;  // switch of the topology -> ours
  const auto place = [&](int number, std::string name) {
    layout.above.push_back(Layout::kNone);
    layout.names.push_back(std::move(name));
    numbers.push_back(number);
    return layout.switches() - 1;
  };
  const auto placed_at = [&](int number) {
    const auto [at, is_new] = placed.try_emplace(number, layout.switches());
    if (is_new) place(number, topology.switches[static_cast<std::size_t>(number)].name);
    return at->second;
  };
  for (const std::string& node : nodes) {
    const auto leaf = topology.leaf_of.find(node);
    layout.leaf_of.push_back(leaf != topology.leaf_of.end() ? placed_at(leaf->second)
                                                            : place(Layout::kNone, "of " + node));
  }
  for (int s = 0; s < layout.switches(); ++s) {  // grows meanwhile
    const int number = numbers[static_cast<std::size_t>(s)];
    const int above =
        number == Layout::kNone ? Layout::kNone : topology.switches[static_cast<std::size_t>(number)].above;
    if (above == slurm::Topology::kNone) continue;
    const int at = placed_at(above);
    layout.above[static_cast<std::size_t>(s)] = at;
  }
  return layout;
}

}  // namespace ms::net
