// A rank of a simulated world, alone: its communicators write down what it sends and receives, for sim_solve.h, and no
// other rank needs to be there. The ranks of a mesh that differ only in whom they talk to issue the same program, so
// one is recorded and stands for them all.
#pragma once

#include <vector>

#include "comm/world.h"
#include "tensor/sim_device.h"

namespace ms::comm {

// An operation of a group, as its communicator's requests say; equal ones are one entry.
struct SimMessage {
  std::uint32_t group = 0;  // of SimWorld::groups(): the recording rank's
  OpKind kind = OpKind::barrier;
  std::int64_t size_bytes = 0;  // of the whole, where members have parts
  bool operator==(const SimMessage&) const = default;
};

class SimWorld final : public World {
 public:
  SimWorld(int rank, int size, int ranks_on_node) : rank_(rank), size_(size), ranks_on_node_(ranks_on_node) {}

  std::string_view kind() const override { return "sim"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int ranks_on_node() const override { return ranks_on_node_; }
  std::string node(int rank) const override;
  Store& store() override;  // a bug: nobody is there
  // The stream is one of a SimDevice.
  std::unique_ptr<Communicator> open(const Group& group, tensor::Stream& stream) override;
  void abort(const Error&) noexcept override {}
  std::optional<Cause> cause() const override { return std::nullopt; }
  void close() override {}

  // Those that were opened, in order, and what the messages of the programs are.
  const std::vector<Group>& groups() const { return groups_; }
  const std::vector<SimMessage>& messages() const { return messages_; }

 private:
  int rank_, size_, ranks_on_node_;
  std::vector<Group> groups_;
  std::vector<SimMessage> messages_;
};

// "sim0017", the host of a simulated node.
std::string sim_node_name(int node);

}  // namespace ms::comm
