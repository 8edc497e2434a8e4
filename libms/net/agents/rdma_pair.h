// Two agents measure RDMA between them: they agree on a session's channel who waits and who calls, and perftest does
// the rest.
#pragma once

#include <string>

#include "net/agents/peer.h"
#include "net/measure/pair.h"
#include "net/transport/channel.h"
#include "net/transport/fields.h"

namespace ms::net {

// What the other agent asks for in a line that began with "rdma".
void serve_rdma(Channel& session, const Self& self, Fields& words);
// Drives it. `host` is the other's address. Throws Error("net.rdma").
void measure_rdma(Channel& session, const Self& self, const std::string& host, const PairSpec& spec,
                  PairResult& result);

}  // namespace ms::net
