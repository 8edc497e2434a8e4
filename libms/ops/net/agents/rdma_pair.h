// RDMA measurement between two agents: they agree over a session's channel which one waits and which one calls, and
// perftest measures.
#pragma once

#include <string>

#include "net/agents/peer.h"
#include "net/measure/pair.h"
#include "net/transport/channel.h"
#include "net/transport/fields.h"

namespace ms::net {

// Serves the other agent's request; `words` are the rest of a line that began with "rdma".
void serve_rdma(Channel& session, const Self& self, Fields& words);
// Drives the measurement. `host` is the other agent's address. Throws Error("net.rdma").
void measure_rdma(Channel& session, const Self& self, const std::string& host, const PairSpec& spec,
                  PairResult& result);

}  // namespace ms::net
