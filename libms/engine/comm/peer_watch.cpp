#include "comm/peer_watch.h"

#include <algorithm>

namespace ms::comm {
namespace {

// A dead peer that this rank does not wait for: leaves another rank time to report in which operation it misses the
// peer.
constexpr std::chrono::milliseconds kUnawaitedGrace(300);

}  // namespace

void PeerWatch::start(int rank, std::vector<ProcessId> processes) {
  rank_ = rank;
  processes_ = std::move(processes);
  const ProcessId& own = processes_[static_cast<std::size_t>(rank)];
  for (int peer = 0; peer < static_cast<int>(processes_.size()); ++peer) {
    if (peer != rank && same_host(processes_[static_cast<std::size_t>(peer)], own)) on_node_.push_back(peer);
  }
}

std::vector<int> PeerWatch::node_ranks() const {
  std::vector<int> ranks = on_node_;
  ranks.insert(std::ranges::upper_bound(ranks, rank_), rank_);
  return ranks;
}

std::vector<std::vector<int>> PeerWatch::other_nodes() const {
  std::map<std::string, std::vector<int>> by_node;
  for (int peer = 0; peer < static_cast<int>(processes_.size()); ++peer) {
    const ProcessId& process = processes_[static_cast<std::size_t>(peer)];
    if (same_host(process, processes_[static_cast<std::size_t>(rank_)])) continue;
    std::vector<int>& ranks = by_node[process.host];
    if (ranks.size() == 2) ranks.pop_back();  // the first and the last
    ranks.push_back(peer);
  }
  std::vector<std::vector<int>> all, chosen;
  for (auto& [node, ranks] : by_node) all.push_back(std::move(ranks));
  const std::size_t wanted = std::min(all.size(), kMostNodes);
  for (std::size_t i = 0; i < wanted; ++i) chosen.push_back(std::move(all[i * all.size() / wanted]));
  return chosen;
}

void PeerWatch::check(Time now, const Exchanges& active, const std::function<bool()>& drain_control) {
  for (const int peer : on_node_) {
    const ProcessId& process = processes_[static_cast<std::size_t>(peer)];
    if (!has_died(process, processes_[static_cast<std::size_t>(rank_)])) continue;
    if (!drain_control()) return;
    const auto waits_for_it = std::ranges::find_if(
        active, [&](const auto& exchange) { return std::ranges::binary_search(exchange->awaited(), peer); });
    if (waits_for_it == active.end()) {
      // While closing: the peer has closed the world and exited first.
      if (std::ranges::any_of(active, [](const auto& exchange) { return exchange->closes_world; })) continue;
      if (unawaited_.emplace(peer, now).first->second + kUnawaitedGrace > now) continue;
    }
    const std::string what = waits_for_it == active.end() ? std::string() : (*waits_for_it)->what();
    throw Error("comm.peer_lost", Blame::peer,
                fmt::format("rank {} (pid {} on {}) died{}{}", peer, process.pid, process.host,
                            what.empty() ? "" : " during ", what))
        .with_operation(what)
        .with_rank(peer);
  }
}

}  // namespace ms::comm
