// Compares the clocks of nodes, for ms-tracepp: one rank of each node exchanges timestamps with one rank of another
// node, along a tree of nodes. The trainer creates a ClockProbe and begins rounds at steps that all ranks derive from
// the configuration.
//
// A round is issued like any other work and the host never waits for it: it runs on two streams of its own, its
// transfers have the deadline of all operations, and they are not traced. Questions and answers use separate groups, so
// that the receive of each is posted before its send: an asymmetric network delay cannot be told from a clock offset.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/world.h"
#include "trace/format.h"

namespace ms::comm {

class ClockProbe {
 public:
  using Clock = std::function<std::int64_t()>;  // this rank's clock in ns; called by workers of the device
  static constexpr int kFanOut = 32;            // children of a node in the tree, answered one after the other
  static constexpr std::size_t kKept =
      3;  // probes kept per round and pair of nodes: those with the shortest round trip

  // Every rank constructs one; sends nothing. `device` is a CPU device. Uses the group ids first_group_id to
  // first_group_id + group_count() - 1. World and device must outlive the probe.
  ClockProbe(World& world, tensor::Device& device, int first_group_id, Clock clock = trace_clock());
  ~ClockProbe();  // waits for the rounds that this rank issued

  // Collective over the world: all ranks begin the same rounds with the same number of samples. Issues the transfers
  // and does not wait.
  void round(int round, int samples);
  // Waits until the rounds that this rank has issued are complete.
  void wait();
  // Returns the probes of completed rounds since the last call. From any thread; does not wait.
  std::vector<trace::format::Probe> take();

  // Returns the number of groups that a probe uses: two for each node but the first.
  static int group_count(const World& world);
  static Clock trace_clock();  // the clock of trace timestamps

 private:
  struct Edge {
    std::uint32_t peer = 0;
    bool asks = false;
    std::unique_ptr<Communicator> questions, answers;
    trace::format::Probe now;                   // in progress
    std::vector<trace::format::Probe> samples;  // of the current round
  };
  void ask(Edge& edge, int round);
  void answer(Edge& edge);
  void keep(Edge& edge);

  Clock clock_;
  std::mutex mutex_;  // guards completed_
  std::vector<trace::format::Probe> completed_;
  std::unique_ptr<tensor::Memory> memory_;
  Tensor question_, answer_;
  std::unique_ptr<tensor::Stream> questions_, answers_;  // destroyed after the communicators, before the memory
  std::vector<Edge> edges_;                              // to the parent, then to the children
};

}  // namespace ms::comm
