// Whether peers on this node still live: one that ends before the world is closed is lost, whether or not anybody waits
// for it yet. Those on other nodes are missed by deadlines.
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

  // The processes of all ranks, by rank.
  void start(int rank, std::vector<ProcessId> processes);
  int ranks_on_node() const { return 1 + static_cast<int>(on_node_.size()); }
  std::string node(int rank) const { return processes_[static_cast<std::size_t>(rank)].host; }

  // Throws Error("comm.peer_lost") when a peer has died. `hear_the_last` takes what it sent before it went, why it
  // stops or that it has closed the world, and says whether the world still stands. `active`: the exchanges under way.
  void check(Time now, const Exchanges& active, const std::function<bool()>& hear_the_last);

 private:
  int rank_ = -1;
  std::vector<ProcessId> processes_;
  std::vector<int> on_node_;
  std::map<int, Time> unawaited_;  // the dead that nobody here waited for, since when
};

}  // namespace ms::comm
