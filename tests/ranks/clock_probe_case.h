// Clock probes between ranks on simulated nodes, with clocks that differ: the measured offsets must be correct. Runs
// over threads and over MPI.
#pragma once

#include "comm/clock_probe.h"
#include "conformance.h"

namespace ms::comm::cases {

// Returns the clock of a node that is `offset_ns` ahead of the machine's.
ClockProbe::Clock clock_ahead(std::int64_t offset_ns);
std::int64_t offset_of(int rank);

// A world in which rank r runs on node r / ranks_a_node.
class PretendedNodes final : public World {
 public:
  PretendedNodes(World& world, int ranks_a_node) : world_(world), ranks_a_node_(ranks_a_node) {}
  std::string_view kind() const override { return world_.kind(); }
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  int ranks_on_node() const override { return ranks_a_node_; }
  std::string node(int rank) const override { return fmt::format("node{}", rank / ranks_a_node_); }
  Store& store() override { return world_.store(); }
  std::unique_ptr<Communicator> open(const Group& group, tensor::Stream& stream) override {
    return world_.open(group, stream);
  }
  void abort(const Error& cause) noexcept override { world_.abort(cause); }
  std::optional<Cause> cause() const override { return world_.cause(); }
  void close() override { world_.close(); }

 private:
  World& world_;
  int ranks_a_node_;
};

// Runs three rounds and checks that each rank gets the expected probes, correct within half a round trip.
void probe_and_check(Rank& rank, int ranks_a_node);

}  // namespace ms::comm::cases
