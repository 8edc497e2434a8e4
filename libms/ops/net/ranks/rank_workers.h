// Workers that are the ranks of a launch: one of each node, or all ranks if there is only one node. Pairs send and
// receive with this project's communicators, so they measure what a training run over them would get.
#pragma once

#include <memory>

#include "comm/world.h"
#include "net/measure/workers.h"
#include "net/ranks/ranks.h"

namespace ms::net {

class RankPart;

// Collective: every rank constructs one. Rank 0 then calls test() any number of times while the others are in serve(),
// which returns when rank 0 destroys its RankWorkers, or throws Error("comm.*").
class RankWorkers : public Workers {
 public:
  RankWorkers(comm::World& world, const RankDevices& devices);
  ~RankWorkers() override;
  RankWorkers(const RankWorkers&) = delete;
  RankWorkers& operator=(const RankWorkers&) = delete;

  // Measures latency and streams. A stream is one flow; datagrams and sizes are not tried. A lost rank is reported in
  // the results, and works() is false from then on.
  std::vector<PairResult> test(const Round& round, const PairSpec& spec, int source_port = 0) override;
  // Times an all-reduce within each group, all groups at the same time and with as many bytes. Returns the seconds of
  // each group over the bus factor of all-reduce. No node is in two groups. Throws Error("comm.*").
  std::vector<double> time_groups(const std::vector<std::vector<int>>& groups);
  std::vector<std::string> not_run() const override;
  bool works() const override { return works_; }
  void serve();

 private:
  std::unique_ptr<RankPart> part_;  // of this rank
  std::vector<int> ranks_;          // of the nodes
  bool is_first_, one_gpu_a_node_;
  bool works_ = true;
  // The size of a reduction: as many bytes as take about kReduction_s in the first call's fastest group, within bounds.
  static constexpr std::int64_t kLeastReduced = 512 << 10;
  static constexpr double kReduction_s = 0.02;
  std::int64_t reduced_bytes_ = kLeastReduced;
  bool sized_ = false;
};

}  // namespace ms::net
