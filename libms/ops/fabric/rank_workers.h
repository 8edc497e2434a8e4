// The workers of a launch. Pairs send and receive with this project's communicators, so they measure what a training
// run over them would get.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "comm/world.h"
#include "fabric/ranks.h"
#include "net/measure/ranks.h"
#include "net/report/report.h"

namespace ms::fabric {

class RankPart;

// Collective: every rank constructs one. Rank 0 then calls test() any number of times while the others are in serve(),
// which returns when rank 0 destroys its RankWorkers, or throws Error("comm.*").
class RankWorkers : public net::LaunchedWorkers {
 public:
  RankWorkers(comm::World& world, const RankDevices& devices);
  ~RankWorkers() override;
  RankWorkers(const RankWorkers&) = delete;
  RankWorkers& operator=(const RankWorkers&) = delete;

  // Measures latency and streams. A stream is one flow; datagrams and sizes are not tried. A lost rank is reported in
  // the results, and works() is false from then on.
  std::vector<net::PairResult> test(const net::Round& round, const net::PairSpec& spec, int source_port = 0) override;
  std::vector<double> time_groups(const std::vector<std::vector<int>>& groups) override;
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

// The check by the ranks that are asked for: what it returns on rank 0, nullopt on the other processes of a launch.
// A lost rank is in the results. Throws what run_ranks throws.
std::optional<net::Checked> check_ranks(const net::RanksRequest& request,
                                        const std::function<net::Checked(net::LaunchedWorkers& workers)>& check);

}  // namespace ms::fabric
