// Small programs for the tests of the solver, recorded as a rank issues them. In their virtual time an operation on n
// floats takes n seconds, and a link inside a node carries one float a second.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "comm/sim_solve.h"

namespace ms::comm {

// One simulated rank's host.
class SimHost {
 public:
  explicit SimHost(int rank) : world_(rank, 16, 4) {}

  tensor::Stream& stream(tensor::StreamKind kind = tensor::StreamKind::compute) {
    streams_.push_back(device_.make_stream("s" + std::to_string(streams_.size()), kind));
    return *streams_.back();
  }
  Communicator& open(const std::string& name, std::vector<int> ranks, tensor::Stream& stream) {
    communicators_.push_back(world_.open({.name = name, .id = 0, .ranks = std::move(ranks)}, stream));
    return *communicators_.back();
  }
  Communicator& channel(int from, int to, tensor::Stream& stream) {
    return open("pp.fwd[tp 0] " + std::to_string(from) + ">" + std::to_string(to), {from, to}, stream);
  }
  Tensor floats(int count) { return arena_.take(tensor::DType::f32, 1, count); }
  void work(tensor::Stream& stream, int seconds) {
    if (seconds > 0) stream.submit(tensor::Fill{.x = floats(seconds)});
  }
  SimRecording record() { return {world_.rank(), device_.take_program(), world_.groups(), world_.comm_ops()}; }

 private:
  tensor::Arena arena_ = tensor::Arena::measuring();
  tensor::SimDevice device_;
  std::vector<std::unique_ptr<tensor::Stream>> streams_;
  SimWorld world_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

// Four ranks on a node, two nodes under a leaf switch: 1, 1/2 and 1/4 floats a second, no latency.
inline cost::Cluster small_cluster() {
  cost::Cluster cluster;
  cluster.node = {.ranks = 4, .cores = 0, .gb_s = 4e-9, .latency_s = 0};
  cluster.network = {.gb_s = 2e-9, .latency_s = 0, .nodes_per_leaf = 2, .spine_share = 0.5, .spine_latency_s = 0};
  return cluster;
}

// Every rank runs its own recording unless a test changes the setup.
struct Simulation {
  explicit Simulation(std::vector<SimRecording> recorded) : recordings(std::move(recorded)) {
    setup.cluster = &cluster;
    for (const SimRecording& recording : recordings)
      setup.ranks.push_back({.rank = recording.rank, .recording = &recording});
    setup.seconds = [](const tensor::OpCost& op) { return op.bytes / 4; };
    setup.stands_for = [this](int rank) {
      for (std::size_t i = 0; i < setup.ranks.size(); ++i)
        if (setup.ranks[i].rank == rank) return i;
      ADD_FAILURE() << "rank " << rank << " is not simulated";
      return std::size_t{0};
    };
  }
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  SimResult expect_ends(const std::vector<double>& ends_s) const {
    SimResult result = solve(setup);
    EXPECT_EQ(result.ranks.size(), ends_s.size());
    for (std::size_t i = 0; i < ends_s.size(); ++i)
      EXPECT_NEAR(result.ranks[i].end_s, ends_s[i], 1e-9) << "rank " << setup.ranks[i].rank;
    EXPECT_NEAR(result.seconds, std::ranges::max(ends_s), 1e-9);
    return result;
  }

  cost::Cluster cluster = small_cluster();
  std::vector<SimRecording> recordings;
  SimSetup setup;
};

}  // namespace ms::comm
