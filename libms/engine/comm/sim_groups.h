// The groups of a simulation: match the operations of ranks by group and number, and determine when an operation can
// begin. Private to sim_solve.cpp.
#pragma once

#include <deque>
#include <map>
#include <tuple>

#include "comm/sim_solve.h"

namespace ms::comm {

struct SimGroup {
  cost::Path path;
  int size = 0;
  bool is_free = false;
  std::size_t arrivals = 0;  // number of ranks that an operation waits for
  // The links that its operations share with those of other groups: the sender's outgoing and the receiver's incoming
  // link for a channel, otherwise both links of every member.
  std::vector<std::uint32_t> links;
  struct Arrival {
    std::uint32_t rank = 0, stream = 0;
    double ready_s = 0;
    trace::Ticket ticket = trace::kNoTicket;
    bool copies = true;  // false: it sends, and the other end copies
  };
  struct Operation {
    OpKind kind = OpKind::barrier;
    std::int64_t size_bytes = 0;
    std::vector<Arrival> arrived;
  };
  std::deque<Operation> pending;  // not all ranks have arrived; by number
  std::uint64_t first = 0;        // the number of pending.front()
};

// The links of each simulated rank: within the node and beyond it, outgoing and incoming.
inline constexpr std::size_t kLinksOfRank = 4;
constexpr std::uint32_t link_of(std::size_t rank, cost::Meet meet, bool sends) {
  return static_cast<std::uint32_t>(kLinksOfRank * rank + (meet == cost::Meet::node ? 0 : 2) + (sends ? 0 : 1));
}

cost::Collective collective_of(OpKind kind);

class SimGroups {
 public:
  explicit SimGroups(const SimSetup& setup);
  SimGroup& of(std::size_t rank, std::uint32_t recorded_group) { return groups_[index_[rank][recorded_group]]; }

 private:
  std::size_t find(std::size_t rank, std::uint32_t recorded_group, bool is_channel);

  using Key = std::tuple<std::string, int, int>;  // identifies a group of the run: name of its kind, members
  const SimSetup& setup_;
  std::map<Key, std::size_t> known_;
  std::vector<SimGroup> groups_;
  std::vector<std::vector<std::size_t>> index_;  // [rank][recorded group]
};

}  // namespace ms::comm
