// An agent's two halves towards other agents: it serves what they want to measure with it, and measures with them.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "base/sysroot.h"
#include "link/channel.h"
#include "net/measure/pair.h"
#include "net/measure/perftest.h"

namespace ms::net {

struct Self {
  std::string secret;
  link::Address address;  // that others reach it at, and that it sends from; port 0
  std::string interface;  // that has this address
  Sysroot root;
  std::optional<RdmaPort> rdma = {};
  int port = 0;  // that it serves others at; 0: at none, so no peer is asked to connect back
  // The most that a stream to another agent waited for a CPU here, as Way::cpu_wait, since a session asked for it.
  std::shared_ptr<std::atomic<double>> sender_wait = std::make_shared<std::atomic<double>>(0.0);
};

// Everything that another agent asks of us on one connection it made and greeted us on; returns when that is over.
// Throws what goes wrong.
void serve_peer(link::Channel channel, const std::string& greeting, const Self& self);

// Measures the pair (we, the other) as `spec` says; ours is `there`. The other one connects back, too. What cannot be
// measured is said in `error`, with what was measured before. Indices are not set. `source_port` is that of the first
// flow, counted on for the others; 0: any.
PairResult test_pair(const Self& self, const link::Address& other, const std::string& name, const PairSpec& spec,
                     int source_port = 0);

}  // namespace ms::net
