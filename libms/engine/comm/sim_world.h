// One rank of a simulated world: its communicators record the operations for sim_solve.h, and no other rank needs to
// exist. Ranks of a mesh that differ only in their peers issue the same program, so one recording represents them all.
#pragma once

#include <vector>

#include "comm/world.h"
#include "tensor/sim_device.h"

namespace ms::comm {

// A communication operation of a group; equal operations are one entry.
struct SimCommOp {
  std::uint32_t group = 0;  // of SimWorld::groups(): the recording rank's
  OpKind kind = OpKind::barrier;
  std::int64_t size_bytes = 0;   // of the whole, where members have parts
  bool gathers_experts = false;  // Communicator::gather_rows()
  bool operator==(const SimCommOp&) const = default;
};

class SimWorld final : public World {
 public:
  SimWorld(int rank, int size, int ranks_on_node) : rank_(rank), size_(size), ranks_on_node_(ranks_on_node) {}

  std::string_view kind() const override { return "sim"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int ranks_on_node() const override { return ranks_on_node_; }
  std::string node(int rank) const override;
  Store& store() override;  // asserts: a simulated world has none
  // `stream` must belong to a SimDevice.
  std::unique_ptr<Communicator> open(const Group& group, tensor::Stream& stream) override;
  void abort(const Error&) noexcept override {}
  std::optional<Cause> cause() const override { return std::nullopt; }
  void close() override {}

  // Returns the opened groups, in order, and the communication operations that the recorded programs refer to.
  const std::vector<Group>& groups() const { return groups_; }
  const std::vector<SimCommOp>& comm_ops() const { return comm_ops_; }

 private:
  int rank_, size_, ranks_on_node_;
  std::vector<Group> groups_;
  std::vector<SimCommOp> comm_ops_;
};

// "sim0017", the host of a simulated node.
std::string sim_node_name(int node);

}  // namespace ms::comm
