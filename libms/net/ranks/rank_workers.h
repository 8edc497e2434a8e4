// The ranks of a launch as those who measure: one of each node, or all ranks where there is one node only. Pairs send
// and receive with this project's communicators, so what they see is what a training run over them would.
#pragma once

#include <memory>

#include "comm/world.h"
#include "net/measure/workers.h"
#include "tensor/stream.h"

namespace ms::net {

class RankPart;

// Collective: every rank makes one. Rank 0 then calls test() as it likes while the others are in serve(), which
// returns when rank 0's workers goes, or throws Error("comm.*").
class RankWorkers : public Workers {
 public:
  RankWorkers(comm::World& world, tensor::Device& device);
  ~RankWorkers() override;
  RankWorkers(const RankWorkers&) = delete;
  RankWorkers& operator=(const RankWorkers&) = delete;

  // Latency and streams. A stream is one flow; datagrams and sizes are not tried. Of ranks that are lost it says so in
  // the results, and nothing works any more.
  std::vector<PairResult> test(const Round& round, const PairSpec& spec, int source_port = 0) override;
  // Groups of nodes reduce side by side, each for itself, and all as many bytes: the seconds of each, over the bus
  // factor of all-reduce. No node is in two. Throws Error("comm.*").
  std::vector<double> time_groups(const std::vector<std::vector<int>>& groups);
  std::vector<std::string> not_run() const override;
  bool works() const override { return works_; }
  void serve();

 private:
  std::unique_ptr<RankPart> part_;  // of this rank
  std::vector<int> ranks_;          // of the nodes
  bool is_first_;
  bool works_ = true;
  // Of a reduction: as many bytes as take about so long between two nodes, within bounds.
  static constexpr std::int64_t kLeastReduced = 512 << 10;
  static constexpr double kReduction_s = 0.02;
  std::int64_t reduced_bytes_ = kLeastReduced;
  bool sized_ = false;
};

}  // namespace ms::net
