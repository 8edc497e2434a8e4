// Asks the clocks of other nodes, for tracepp/align.h: one rank of each node exchanges times with one of another, along
// a tree of nodes. Train makes one and begins rounds at steps that all ranks know from the configuration.
//
// A round is issued like everything else and waited for by nobody: it runs on two streams of its own, its messages have
// the deadline of all messages, and they are not traced. Questions go one way and answers the other in groups of their
// own, so that whoever will receive is already waiting: a way there that differs from the way back cannot be told from
// clocks that differ.
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
  using Clock = std::function<std::int64_t()>;  // ns, of this rank's; called by workers of the device
  static constexpr int kFanOut = 32;            // questions that a node answers one after the other
  static constexpr std::size_t kKept = 3;       // probes of a round and a pair of nodes: those that were quickest

  // Collective over the world in that all ranks make one; sends nothing. A CPU device. Takes the ids from
  // first_group_id on, group_count() of them. World and device outlive it.
  ClockProbe(World& world, tensor::Device& device, int first_group_id, Clock clock = trace_clock());
  ~ClockProbe();  // waits for what it issued

  // Collective over the world: all ranks begin the same rounds, with as many samples. Issues, does not wait.
  void round(int round, int samples);
  // Until the rounds that this rank has issued are over.
  void wait();
  // What this rank has learned since the last time, of rounds that are over: any thread, never waits for a round.
  std::vector<trace::format::Probe> take();

  // Of a world: two for each node but the first.
  static int group_count(const World& world);
  static Clock trace_clock();  // that traces are written by

 private:
  struct Edge {
    std::uint32_t peer = 0;
    bool asks = false;
    std::unique_ptr<Communicator> questions, answers;
    trace::format::Probe now;                   // being asked, or being answered
    std::vector<trace::format::Probe> samples;  // of the round
  };
  void ask(Edge& edge, int round);
  void answer(Edge& edge);
  void keep(Edge& edge);

  Clock clock_;
  std::mutex mutex_;  // guards learned_
  std::vector<trace::format::Probe> learned_;
  std::unique_ptr<tensor::Memory> memory_;
  Tensor question_, answer_;
  std::unique_ptr<tensor::Stream> questions_, answers_;  // after what their calls touch, before the communicators
  std::vector<Edge> edges_;                              // the one to ask first
};

}  // namespace ms::comm
