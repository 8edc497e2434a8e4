// A pair's test: the spec and the result. Plain data; agents measure, the rest judges.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace ms::net {

struct PairSpec {
  int pings = 200;               // round trips; 0: no latency
  double ping_s = 0.5;           // at most
  double seconds = 0.4;          // of a stream of bytes, of which the first fifth does not count; 0: no bandwidth
  std::int64_t bytes = 1 << 30;  // at most, of a stream
  bool back = true;              // the stream of the other direction, too
  bool both_at_once = true;      // streams of both directions at the same time; else one after the other
  int flows = 1;                 // connections a direction
  double max_gbps = 0;           // of a direction, all flows together; 0: as fast as it goes
  int datagrams = 8000;          // each way, evenly over a time, to count lost ones; 0: none
  double datagrams_s = 0.4;
  bool sizes = true;  // do packets as large as the sender's MTU arrive?
  bool rdma = false;  // latency and streams by perftest, one direction after the other; no datagrams, no sizes
  bool operator==(const PairSpec&) const = default;
};
// Returns the longest time that such a test takes on a working fabric.
inline double most_seconds(const PairSpec& spec) {
  if (spec.rdma) {
    constexpr double kStart_s = 0.5;  // of a program, and its end
    return (spec.pings > 0 ? kStart_s : 0) + (spec.back ? 2 : 1) * (std::max(1.0, std::ceil(spec.seconds)) + kStart_s);
  }
  return (spec.pings > 0 ? spec.ping_s : 0) + spec.seconds * (spec.both_at_once ? 1 : 2) +
         (spec.datagrams > 0 ? spec.datagrams_s + 0.1 : 0) + (spec.sizes ? 0.05 : 0);
}

// From one node to the other.
struct Way {
  std::string unreached = {};          // why its sender cannot connect to its receiver; empty: it can, or did not try
  double gbps = -1;                    // that arrived, all flows together; negative: not measured
  std::vector<double> flow_gbps = {};  // of each flow, by source port
  double cpu_wait = 0;                 // the share of its stream's time that an end waited for a CPU: the larger one
  std::int64_t sent = 0;               // datagrams
  std::int64_t lost = 0;               // of them, on the way: what the receiver itself dropped is not counted
  std::int64_t dropped = 0;            // by the receiver: its socket was full, or its kernel's backlog
  int mtu = 0;                         // of the sender's interface; 0: not tried, or no answer to packets of any size
  bool large_pass = true;              // packets of that size arrive
  bool operator==(const Way&) const = default;
};

// Counts of one node's interface and kernel during the pair's test.
struct NodeCounts {
  std::int64_t carrier_losses = 0;  // of the interface
  std::int64_t carrier_gains = 0;   // times that it came back
  std::int64_t errors = 0;          // received packets that were damaged, and those that could not be sent
  std::int64_t retransmits = 0;     // TCP segments of the whole node
  std::int64_t segments = 0;        // that it sent
  bool operator==(const NodeCounts&) const = default;
};

struct PairResult {
  int a = 0, b = 0;        // nodes; a < b
  std::string error = {};  // why there is nothing below, or not all of it
  int at_fault = -1;       // the node that did not do its part, where that is known: an agent that is gone; it may be
                           // another one than these two, which then ended their test
  bool cut_short = false;  // by an event elsewhere or at an unknown place: the error tells nothing of this pair
  double least_us = -1, p50_us = -1, p99_us = -1;  // half of a round trip; negative: not measured
  double cpu_wait_us = 0;                          // the mean of what either end waited for a CPU, likewise halved
  Way there, back;                                 // a to b, b to a
  bool at_once = false;                            // streams of both directions were
  NodeCounts counts_a, counts_b;
  double seconds = 0;  // it all took
  // The latency without what the ends waited for a CPU, which says nothing of the network. The least round trip waited
  // no more than the mean one: this subtracts too much rather than too little, so that it only acquits.
  double network_us() const { return std::max(0.0, least_us - cpu_wait_us); }
  bool operator==(const PairResult&) const = default;
};

}  // namespace ms::net
