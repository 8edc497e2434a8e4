#include "tensor/sim_device.h"

#include <sys/mman.h>

#include <bit>
#include <utility>

namespace ms::tensor {
namespace {

class SimEvent final : public EventState {
 public:
  explicit SimEvent(std::uint32_t number) : index(number) {}
  bool ready() const override { return true; }
  void synchronize() override {}
  const std::uint32_t index;
};

// Address space without memory: an access crashes.
class SimMemory final : public Memory {
 public:
  SimMemory(std::size_t bytes, const std::string& what) : size_(bytes) {
    if (size_ == 0) return;
    void* address = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) {
      throw Error("tensor.memory", Blame::user,
                  fmt::format("{} bytes of address space for {}: {}", size_, what, errno_text(errno)));
    }
    data_ = static_cast<std::byte*>(address);
  }
  ~SimMemory() override {
    if (data_ != nullptr) munmap(data_, size_);
  }
  SimMemory(const SimMemory&) = delete;
  SimMemory& operator=(const SimMemory&) = delete;
  std::byte* data() const override { return data_; }
  std::size_t size_bytes() const override { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_;
};

class HostMemory final : public Memory {
 public:
  explicit HostMemory(std::size_t bytes) : bytes_(bytes) {}
  std::byte* data() const override { return const_cast<std::byte*>(bytes_.data()); }
  std::size_t size_bytes() const override { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

std::size_t SimDevice::CostHash::operator()(const OpCost& cost) const {
  std::uint64_t hash = static_cast<std::uint64_t>(cost.op_class);
  for (const std::uint64_t part :
       {std::bit_cast<std::uint64_t>(cost.flops), std::bit_cast<std::uint64_t>(cost.bytes)}) {
    hash = (hash ^ part) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32;
  }
  return hash;
}

std::uint32_t SimDevice::op_index(const Op& op) {
  const OpCost cost = cost_of(op);
  const auto [place, is_new] = known_.try_emplace(cost, static_cast<std::uint32_t>(program_.ops.size()));
  if (is_new) program_.ops.push_back(cost);
  return place->second;
}

std::unique_ptr<Stream> SimDevice::make_stream(std::string name, StreamKind kind) {
  program_.streams.push_back({name, kind, {}});
  return std::make_unique<SimStream>(*this, std::move(name), next_stream_index());
}

std::unique_ptr<Memory> SimDevice::allocate(std::size_t bytes, const std::string& what) {
  return std::make_unique<SimMemory>(bytes, what);
}

std::unique_ptr<Memory> SimDevice::allocate_host(std::size_t bytes, const std::string&) {
  return std::make_unique<HostMemory>(bytes);
}

SimProgram SimDevice::take_program() {
  SimProgram taken = std::exchange(program_, {});
  taken.events = next_event_ - first_event_;
  first_event_ = next_event_;
  known_.clear();
  for (const SimProgram::Stream& stream : taken.streams) program_.streams.push_back({stream.name, stream.kind, {}});
  return taken;
}

SimStream::SimStream(SimDevice& device, std::string name, int index)
    : Stream(device, std::move(name), index), sim_(device) {}

void SimStream::add(const SimItem& item) {
  sim_.program_.streams[static_cast<std::size_t>(index())].items.push_back(item);
}

void SimStream::comm_op(std::uint32_t index) {
  add({SimItem::Kind::comm_op, index, std::exchange(next_ticket_, trace::kNoTicket)});
}

void SimStream::do_submit(const Op& op) {
  const auto add_op = [this](const Op& one) {
    add({SimItem::Kind::op, sim_.op_index(one), std::exchange(next_ticket_, trace::kNoTicket)});
  };
  // The fused GELU is counted as an op of its own: fusion makes it free on the newest GPUs at most.
  const auto* matmul = std::get_if<Matmul>(&op);
  if (matmul != nullptr && (matmul->gelu_y || matmul->gelu_x)) {
    Matmul alone = *matmul;
    alone.gelu_y = alone.gelu_x = {};
    add_op(alone);
    if (matmul->gelu_y) add_op(GeluFwd{.y = matmul->gelu_y, .x = matmul->c});
    if (matmul->gelu_x) add_op(GeluBwd{.dx = matmul->c, .dy = matmul->c, .x = matmul->gelu_x});
  } else {
    Op loaded = op;
    if (auto* grouped = std::get_if<GroupedMatmul>(&loaded)) grouped->used *= sim_.expert_load_;
    if (auto* sum = std::get_if<ExpertSum>(&loaded)) sum->used *= sim_.expert_load_;
    add_op(loaded);
  }
  if (device().observer() != nullptr) device().observer()->ran(op, 0);
}

std::shared_ptr<EventState> SimStream::do_record() {
  const std::uint32_t event = sim_.next_event_++;
  add({SimItem::Kind::record, event - sim_.first_event_, trace::kNoTicket});
  return std::make_shared<SimEvent>(event);
}

void SimStream::do_wait(const Event& event) {
  const auto* state = dynamic_cast<const SimEvent*>(event.state().get());
  MS_ASSERT(state != nullptr, "stream {} of a simulation waits for an event of another device", name());
  if (state->index < sim_.first_event_) return;  // recorded in a program that was taken
  add({SimItem::Kind::wait, state->index - sim_.first_event_, trace::kNoTicket});
}

void SimStream::do_section(trace::Ticket ticket, bool begins) {
  add({begins ? SimItem::Kind::begin_section : SimItem::Kind::end_section, 0, ticket});
}

}  // namespace ms::tensor
