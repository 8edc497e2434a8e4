// RDMA measurement between two agents: they agree over a session's channel which one waits and which one calls, and
// perftest measures.
#pragma once

#include <string>

#include "link/channel.h"
#include "net/agents/fields.h"
#include "net/agents/peer.h"
#include "net/measure/pair.h"

namespace ms::net {

// Serves the other agent's request; `words` are the rest of a line that began with "rdma".
void serve_rdma(link::Channel& session, const Self& self, Fields& words);
// Drives the measurement. `host` is the other agent's address. Throws Error("net.rdma").
void measure_rdma(link::Channel& session, const Self& self, const std::string& host, const PairSpec& spec,
                  PairResult& result);

}  // namespace ms::net
