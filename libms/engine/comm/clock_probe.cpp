#include "comm/clock_probe.h"

#include <algorithm>
#include <map>

#include "tensor/cpu_stream.h"
#include "trace/recorder.h"

namespace ms::comm {
namespace {

// Returns the first rank of each node, in ascending order.
std::vector<int> leader_ranks(const World& world) {
  std::map<std::string, int> known;
  std::vector<int> ranks;
  for (int r = 0; r < world.size(); ++r) {
    if (known.emplace(world.node(r), r).second) ranks.push_back(r);
  }
  return ranks;
}

// Detaches the device's recorder for its lifetime, so that communicators opened meanwhile are not traced.
class Untraced {
 public:
  explicit Untraced(tensor::Device& device) : device_(device), recorder_(device.recorder()) {
    device.set_recorder(nullptr);
  }
  ~Untraced() { device_.set_recorder(recorder_); }
  Untraced(const Untraced&) = delete;
  Untraced& operator=(const Untraced&) = delete;

 private:
  tensor::Device& device_;
  trace::Recorder* recorder_;
};

void call(tensor::Stream& stream, std::function<void()> function) {
  auto* cpu_stream = dynamic_cast<tensor::CpuStream*>(&stream);
  MS_ASSERT(cpu_stream, "clocks are read on stream {}, which does not belong to a CPU device", stream.name());
  cpu_stream->call(std::move(function));
}

std::int64_t round_trip_ns(const trace::format::Probe& probe) {
  return (probe.answered_ns - probe.asked_ns) - (probe.peer_replied_ns - probe.peer_heard_ns);
}

}  // namespace

ClockProbe::Clock ClockProbe::trace_clock() {
  return [] { return trace::now_ns(); };
}

int ClockProbe::group_count(const World& world) { return 2 * (static_cast<int>(leader_ranks(world).size()) - 1); }

ClockProbe::ClockProbe(World& world, tensor::Device& device, int first_group_id, Clock clock)
    : clock_(std::move(clock)) {
  const std::vector<int> nodes = leader_ranks(world);
  const auto me = std::ranges::find(nodes, world.rank());
  if (nodes.size() == 1 || me == nodes.end()) return;
  memory_ = device.allocate(4 * sizeof(double), "times of clock probes");
  const Untraced untraced(device);
  questions_ = device.make_stream("clock questions", tensor::StreamKind::comm);
  answers_ = device.make_stream("clock answers", tensor::StreamKind::comm);
  const auto tensor = [&](std::int64_t first) {
    return Tensor{.data = memory_->data() + first * static_cast<std::int64_t>(sizeof(double)),
                  .rows = 1,
                  .cols = 2,
                  .ld = 2,
                  .dtype = tensor::DType::f64};
  };
  question_ = tensor(0);
  answer_ = tensor(2);
  const auto open = [&](std::size_t child) {
    const std::size_t parent = (child - 1) / kFanOut;
    const std::vector<int> pair{nodes[child], nodes[parent]};
    const int id = first_group_id + 2 * (static_cast<int>(child) - 1);
    Edge edge;
    edge.asks = world.rank() == pair[0];
    edge.peer = static_cast<std::uint32_t>(edge.asks ? pair[1] : pair[0]);
    edge.questions = world.open({fmt::format("clock questions {}>{}", pair[0], pair[1]), id, pair}, *questions_);
    edge.answers = world.open({fmt::format("clock answers {}>{}", pair[1], pair[0]), id + 1, pair}, *answers_);
    edges_.push_back(std::move(edge));
  };
  const auto node = static_cast<std::size_t>(me - nodes.begin());
  if (node > 0) open(node);
  for (std::size_t child = node * kFanOut + 1; child < std::min(nodes.size(), (node + 1) * kFanOut + 1); ++child)
    open(child);
}

ClockProbe::~ClockProbe() {
  for (Edge& edge : edges_) edge.questions.reset(), edge.answers.reset();
  answers_.reset();
  questions_.reset();
}

// Every node first asks its parent, then answers its children one after the other: a child that is served late only
// waits longer for its first answer.
void ClockProbe::round(int round, int samples) {
  for (Edge& edge : edges_) {
    for (int k = 0; k < samples; ++k) {
      if (edge.asks) {
        ask(edge, round);
      } else {
        answer(edge);
      }
    }
    if (edge.asks) keep(edge);
  }
}

void ClockProbe::ask(Edge& edge, int round) {
  call(*questions_, [this, &edge, round] {
    edge.now = {.peer = edge.peer, .round = static_cast<std::uint32_t>(round)};
    edge.now.asked_ns = clock_();
  });
  edge.questions->send(question_);
  edge.answers->recv(answer_);  // posted before the question is sent
  call(*answers_, [this, &edge] {
    edge.now.answered_ns = clock_();
    const auto* times = answer_.as<std::int64_t>();
    edge.now.peer_heard_ns = times[0];
    edge.now.peer_replied_ns = times[1];
    edge.samples.push_back(edge.now);
  });
  questions_->wait(answers_->record());
}

void ClockProbe::answer(Edge& edge) {
  edge.questions->recv(question_);
  call(*questions_, [this, &edge] { edge.now.peer_heard_ns = clock_(); });
  answers_->wait(questions_->record());
  call(*answers_, [this, &edge] {
    auto* times = answer_.as<std::int64_t>();
    times[0] = edge.now.peer_heard_ns;
    times[1] = clock_();
  });
  edge.answers->send(answer_);
}

void ClockProbe::keep(Edge& edge) {
  call(*answers_, [this, &edge] {
    std::ranges::sort(edge.samples, {}, round_trip_ns);
    edge.samples.resize(std::min(edge.samples.size(), kKept));
    const std::lock_guard lock(mutex_);
    completed_.insert(completed_.end(), edge.samples.begin(), edge.samples.end());
    edge.samples.clear();
  });
}

void ClockProbe::wait() {
  if (questions_) questions_->synchronize();
  if (answers_) answers_->synchronize();
}

std::vector<trace::format::Probe> ClockProbe::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(completed_, {});
}

}  // namespace ms::comm
