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
