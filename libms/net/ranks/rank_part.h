// What one rank does of what a workers of ranks measures. Every method is collective over the world, and all ranks call
// the same with the same arguments but for tell(), whose arguments are rank 0's to choose.
#pragma once

#include <memory>
#include <type_traits>
#include <vector>

#include "comm/world.h"
#include "net/measure/pair.h"
#include "net/measure/schedule.h"
#include "tensor/stream.h"

namespace ms::net {

// What rank 0 tells the others. `words` of what follows are a round's pairs, or groups: the size of each and its nodes.
struct Order {
  enum class Kind : int { over, pairs, groups };
  Kind kind = Kind::over;
  int words = 0;
  PairSpec spec;  // of groups: the bytes
};
static_assert(std::is_trivially_copyable_v<Order>);

// What a rank saw in a round: as the first of a pair the round trips, and in each phase what came in.
struct Seen {
  double least_us = -1, p50_us = -1, p99_us = -1;
  double gbps[2] = {-1, -1};
  double seconds = 0;
};
static_assert(std::is_trivially_copyable_v<Seen>);

class RankPart {
 public:
  // `ranks`: that of each node.
  RankPart(comm::World& world, tensor::Device& device, std::vector<int> ranks);
  ~RankPart();
  RankPart(const RankPart&) = delete;
  RankPart& operator=(const RankPart&) = delete;

  // Rank 0's order becomes everybody's.
  void tell(Order& order, std::vector<int>& words);
  // A round of pairs; what all saw, by rank.
  std::vector<Seen> run(const Round& round, const PairSpec& spec);
  // Groups that reduce so many bytes side by side; the seconds of all ranks, 0 of those that are in none.
  std::vector<double> reduce(const std::vector<std::vector<int>>& groups, std::int64_t bytes);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::net
