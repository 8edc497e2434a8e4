// RDMA measurement between two agents by perftest (ib_write_lat, ib_write_bw): one program runs on each side, and the
// one that calls writes into the memory of the one that waits.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "net/measure/fabric_config.h"
#include "net/measure/pair.h"

namespace ms::net {

struct RdmaPort {
  std::string device;  // "mlx5_0"
  int port = 1;
  int gid = -1;     // index of its RoCE v2 GID of an IPv4 address; negative: InfiniBand, or there is none
  double gbps = 0;  // 0: not told
};
// The first active port of the adapters that a list in NCCL's form selects (see nccl_selects); empty: of all.
std::optional<RdmaPort> rdma_port(const FabricFacts& facts, const std::string& hcas);

// Returns why perftest cannot run here; empty where both programs can be started.
std::string why_no_perftest();

enum class RdmaTest { latency, bandwidth };
struct RdmaSeen {
  double least_us = -1, p50_us = -1, p99_us = -1;  // of one way, as perftest halves round trips
  double gbps = -1;
};
// Parses a program's output; nullopt where it contains no result.
std::optional<RdmaSeen> read_perftest(RdmaTest test, std::string_view output);

// Waits for a call: starts the program, tells the TCP port once it listens there, and returns when it has ended.
// Throws Error("net.rdma", node) where it does not come to listen, or fails; Error("subprocess.start", node).
void await_rdma(RdmaTest test, const RdmaPort& on, const PairSpec& spec,
                const std::function<void(int port)>& listening);
// Calls one that waits at this address. Throws Error("net.rdma", fabric) where that fails.
RdmaSeen call_rdma(RdmaTest test, const RdmaPort& from, const PairSpec& spec, const std::string& host, int port);

}  // namespace ms::net
