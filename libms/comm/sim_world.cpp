#include "comm/sim_world.h"

#include <algorithm>

namespace ms::comm {
namespace {

class SimCommunicator final : public Communicator {
 public:
  SimCommunicator(const Group& group, int rank, tensor::SimStream& stream, std::uint32_t index,
                  std::vector<SimMessage>& messages)
      : Communicator(group, rank, stream), stream_(stream), index_(index), messages_(messages) {}

 protected:
  void do_issue(const Request& request) override {
    const SimMessage message{index_, request.kind, request.size_bytes()};
    // A group has few sizes, and mostly the last one again.
    auto known = std::ranges::find(known_, message, [&](std::uint32_t i) { return messages_[i]; });
    if (known == known_.end()) {
      known = known_.insert(known_.end(), static_cast<std::uint32_t>(messages_.size()));
      messages_.push_back(message);
    }
    stream_.message(*known);
  }

 private:
  tensor::SimStream& stream_;
  std::uint32_t index_;
  std::vector<SimMessage>& messages_;  // the world's
  std::vector<std::uint32_t> known_;   // of them, this group's
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
  return std::make_unique<SimCommunicator>(group, rank_, *sim, index, messages_);
}

}  // namespace ms::comm
