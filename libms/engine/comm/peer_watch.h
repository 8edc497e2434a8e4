// Checks whether peers on this node are alive: a peer that exits before the world is closed is lost, whether or not
// this rank waits for it. Deadlines detect lost peers on other nodes.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <vector>

#include "comm/exchange.h"
#include "comm/process.h"

namespace ms::comm {

class PeerWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `processes`: of all ranks, by rank.
  void start(int rank, std::vector<ProcessId> processes);
  // Returns the ranks of this node, in order, this one among them.
  std::vector<int> node_ranks() const;
  // Returns two ranks of every other node, one where it has one, of at most kMostNodes nodes, evenly chosen.
  static constexpr std::size_t kMostNodes = 16;
  std::vector<std::vector<int>> other_nodes() const;
  const ProcessId& process(int rank) const { return processes_[static_cast<std::size_t>(rank)]; }

  // Throws Error("comm.peer_lost") when a peer has died. `drain_control` receives the control messages that the peer
  // sent before it died (a stop message or that it closed the world) and returns whether the world is still running.
  // `active`: the exchanges in progress.
  void check(Time now, const Exchanges& active, const std::function<bool()>& drain_control);

 private:
  int rank_ = -1;
  std::vector<ProcessId> processes_;
  std::vector<int> on_node_;
  std::map<int, Time> unawaited_;  // dead peers that this rank did not wait for, by the time they were noticed
};

}  // namespace ms::comm
