#include "comm/sim_world.h"

#include <algorithm>

namespace ms::comm {
namespace {

class SimCommunicator final : public Communicator {
 public:
  SimCommunicator(const Group& group, int rank, tensor::SimStream& stream, std::uint32_t index,
                  std::vector<SimCommOp>& comm_ops)
      : Communicator(group, rank, stream), stream_(stream), index_(index), comm_ops_(comm_ops) {}

 protected:
  void do_issue(const Request& request) override {
    const SimCommOp op{index_, request.kind, request.size_bytes(), request.gathers()};
    // A group uses few sizes, mostly the last one again.
    auto known = std::ranges::find(known_, op, [&](std::uint32_t i) { return comm_ops_[i]; });
    if (known == known_.end()) {
      known = known_.insert(known_.end(), static_cast<std::uint32_t>(comm_ops_.size()));
      comm_ops_.push_back(op);
    }
    stream_.comm_op(*known);
  }

 private:
  tensor::SimStream& stream_;
  std::uint32_t index_;
  std::vector<SimCommOp>& comm_ops_;  // the world's
  std::vector<std::uint32_t> known_;  // indices of this group's entries
};

}  // namespace

std::string sim_node_name(int node) { return fmt::format("sim{:04}", node); }

std::string SimWorld::node(int rank) const { return sim_node_name(rank / ranks_on_node_); }

Store& SimWorld::store() { assert_failed("store", __FILE__, __LINE__, "a simulated world has no store"); }

std::unique_ptr<Communicator> SimWorld::open(const Group& group, tensor::Stream& stream) {
  auto* sim = dynamic_cast<tensor::SimStream*>(&stream);
  MS_ASSERT(sim != nullptr, "group {} of a simulated world on a stream of a {} device", group.name,
            stream.device().kind());
  const auto index = static_cast<std::uint32_t>(groups_.size());
  groups_.push_back(group);
  return std::make_unique<SimCommunicator>(group, rank_, *sim, index, comm_ops_);
}

}  // namespace ms::comm
