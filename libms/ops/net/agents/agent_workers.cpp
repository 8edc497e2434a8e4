#include "net/agents/agent_workers.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ms::net {

AgentWorkers::AgentWorkers(const AgentWorkersOptions& options) : pool_(options.nodes, options.interface) {
  invited_ = options.nodes.size();
  Invitation invitation = pool_.invitation();
  invitation.rdma = options.rdma;
  invitation.hcas = options.hcas;
  launcher_.emplace(options.launch, options.agent, std::move(invitation));
  launcher_->start(options.nodes);
  pool_.gather(options.wait_s);
  for (const int node : pool_.missing()) missing_.push_back(options.nodes[static_cast<std::size_t>(node)]);
  why_missing_ = launcher_->complaint(missing_);
  // RDMA is not measured if no node has it. If some nodes have it, the others miss it.
  std::vector<std::string> without;
  for (std::size_t node = 0; node < options.nodes.size(); ++node) {
    const Member* member = pool_.member(static_cast<int>(node));
    if (member == nullptr) continue;
    if (!member->no_rdma.empty()) {
      without.push_back(options.nodes[node]);
      why_missing_ = member->no_rdma;
      continue;
    }
    present_.push_back(static_cast<int>(node));
    nodes_.push_back(options.nodes[node]);
  }
  if (nodes_.empty() && !without.empty()) {
    not_run_.push_back(fmt::format("verbs: on no node: {}", std::exchange(why_missing_, {})));
  } else {
    std::ranges::move(without, std::back_inserter(missing_));
  }
}

std::map<std::string, link::Unauthenticated> AgentWorkers::unauthenticated() {
  std::map<std::string, link::Unauthenticated> unauthenticated{{kCoordinator, pool_.unauthenticated()}};
  const std::vector<std::string> told = pool_.ask("unauthenticated");
  for (std::size_t node = 0; node < told.size(); ++node)
    if (!told[node].empty()) unauthenticated[pool_.nodes()[node]] = read_unauthenticated(told[node]);
  std::erase_if(unauthenticated, [](const auto& at) { return at.second.connections == 0; });
  return unauthenticated;
}

double AgentWorkers::link_gbps(int node) const {
  const Member* member = pool_.member(present_[static_cast<std::size_t>(node)]);
  return member == nullptr ? 0 : member->link_gbps;
}

std::vector<PairResult> AgentWorkers::test(const Round& round, const PairSpec& spec, int source_port) {
  Round of;
  for (const auto& [a, b] : round)
    of.emplace_back(present_[static_cast<std::size_t>(a)], present_[static_cast<std::size_t>(b)]);
  std::vector<PairResult> results = pool_.test(of, spec, source_port);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].at_fault >= 0)
      results[i].at_fault = results[i].at_fault == results[i].a ? round[i].first : round[i].second;
    results[i].a = round[i].first;
    results[i].b = round[i].second;
  }
  return results;
}

}  // namespace ms::net
