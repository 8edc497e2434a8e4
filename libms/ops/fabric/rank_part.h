// One rank's part of the measurements of RankWorkers. Every method is collective over the world: all ranks call the
// same one with the same arguments. tell() is the exception: rank 0's arguments replace those of the others.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/world.h"
#include "fabric/ranks.h"
#include "net/measure/pair.h"
#include "net/measure/schedule.h"
#include "tensor/stream.h"

namespace ms::fabric {

// Rank 0's order to the others. `words` words follow: a round's pairs, or for each group its size and its nodes.
struct Order {
  enum class Kind : int { over, pairs, groups };
  Kind kind = Kind::over;
  int words = 0;
  net::PairSpec spec;  // of groups: the bytes
};
static_assert(std::is_trivially_copyable_v<Order>);

// A rank's measurements in a round: the latency, as the first of a pair, and the incoming bandwidth of each phase.
struct Seen {
  double least_us = -1, p50_us = -1, p99_us = -1;
  double pings = 0, cpu_wait_s = 0;  // round trips, as the first of a pair; waiting for a CPU meanwhile, as either
  double gbps[2] = {-1, -1};
  double seconds = 0;
};
static_assert(std::is_trivially_copyable_v<Seen>);

class RankPart {
 public:
  // `nodes`: their names; `ranks`: each node's rank.
  RankPart(comm::World& world, const RankDevices& devices, std::vector<std::string> nodes, std::vector<int> ranks);
  ~RankPart();
  RankPart(const RankPart&) = delete;
  RankPart& operator=(const RankPart&) = delete;

  // Broadcasts rank 0's order and words to all ranks.
  void tell(Order& order, std::vector<int>& words);
  // Runs a round of pairs. Returns the measurements of all ranks, by rank.
  std::vector<Seen> run(const net::Round& round, const net::PairSpec& spec);
  // All-reduces `bytes` in all groups at the same time. Returns the seconds by rank; 0 for a rank in no group.
  std::vector<double> reduce(const std::vector<std::vector<int>>& groups, std::int64_t bytes);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::fabric
