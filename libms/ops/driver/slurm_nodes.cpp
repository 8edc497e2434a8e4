#include "driver/slurm_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "slurm/hostlist.h"
#include "slurm/reach.h"

namespace ms::driver {
namespace {

constexpr std::array<std::string_view, 5> kUnusable = {"DOWN", "NOT_RESPONDING", "FAIL", "FAILING", "POWERED_DOWN"};

}  // namespace

std::map<std::string, std::string> unusable_nodes(const std::vector<std::string>& allocation,
                                                  const std::vector<slurm::Node>& nodes, const std::string& job_nodes,
                                                  const std::vector<std::string>& silent) {
  std::map<std::string, const slurm::Node*> by_name;
  for (const slurm::Node& node : nodes) by_name[node.name] = &node;
  const std::vector<std::string> list = slurm::expand_hostlist(job_nodes).value_or(std::vector<std::string>{});
  const std::set<std::string> in_job(list.begin(), list.end());
  std::map<std::string, std::string> unusable;
  for (const std::string& name : allocation) {
    // A job without nodes is one that Slurm told nothing of.
    if (!in_job.empty() && !in_job.contains(name)) unusable[name] = "Slurm took it out of the job";
    const auto known = by_name.find(name);
    if (known == by_name.end()) continue;
    const slurm::Node& node = *known->second;
    const auto state = std::ranges::find_if(kUnusable, [&](std::string_view word) { return node.has_state(word); });
    if (state != kUnusable.end()) {
      unusable.try_emplace(name, fmt::format("its state in Slurm is {}", *state));
    } else if (node.is_drained_or_draining()) {
      unusable.try_emplace(name, fmt::format("it is drained: {}", node.reason));
    } else if (std::ranges::find(silent, name) != silent.end()) {
      unusable.try_emplace(name, "its slurmd takes no connection");
    }
  }
  return unusable;
}

std::map<std::string, std::string> ask_unusable_nodes(const slurm::Commands& slurm, std::uint32_t job,
                                                      const std::vector<std::string>& allocation) {
  const std::set<std::string> ours(allocation.begin(), allocation.end());
  std::vector<slurm::Node> nodes = slurm.nodes();
  std::erase_if(nodes, [&](const slurm::Node& node) { return !ours.contains(node.name); });
  return unusable_nodes(allocation, nodes, slurm.job(job).nodes,
                        slurm::silent_nodes(slurm, slurm.config(), allocation));
}

std::set<std::string> ask_kept_for_last(const slurm::Commands& slurm) {
  std::set<std::string> last;
  try {
    for (const slurm::Node& node : slurm.nodes()) {
      if (node.is_kept_for_last()) last.insert(node.name);
    }
  } catch (const Error& error) { log::debug("driver", "{}", error.message()); }
  return last;
}

}  // namespace ms::driver
