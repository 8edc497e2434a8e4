// A node's configuration for the fabric: NCCL's environment, interfaces, adapters. Finds settings that conflict, on one
// node and between nodes. Pure but for gather_facts().
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/finding.h"
#include "base/sysroot.h"
#include "clos/fabric.h"

namespace ms::net {

struct InterfaceFacts {
  bool is_up = false;
  int mtu = 0;
  std::int64_t speed_mbps = 0;  // 0: not told
  bool operator==(const InterfaceFacts&) const = default;
};
struct Gid {
  int index = 0;
  std::string type;      // "RoCE v2", "IB/RoCE v1"
  bool is_ipv4 = false;  // ::ffff:a.b.c.d
  bool operator==(const Gid&) const = default;
};
struct AdapterFacts {      // a port of one: "mlx5_0/1"
  std::string state;       // "ACTIVE"
  std::string link_layer;  // "Ethernet", "InfiniBand"
  std::string rate;        // "400 Gb/sec (4X NDR)"
  std::string interface;   // of the network that it belongs to; empty: not told
  int traffic_class = -1;  // negative: not told
  std::vector<Gid> gids;
  // By priority "3": is the notification point (receiver), the reaction point (sender) on?
  std::map<std::string, bool> ecn_np, ecn_rp;
  bool operator==(const AdapterFacts&) const = default;
};
struct FabricFacts {
  std::map<std::string, std::string> environment;  // NCCL_* and UCX_*, OMPI_MCA_btl*
  std::map<std::string, InterfaceFacts> interfaces;
  std::map<std::string, AdapterFacts> adapters;
  std::vector<std::string> not_readable;  // what could not be found out here: "PFC", ...
  bool operator==(const FabricFacts&) const = default;
};

FabricFacts gather_facts(const Sysroot& root, char* const* environment);

// Whether a list of NCCL's (NCCL_SOCKET_IFNAME, NCCL_IB_HCA) selects a name: prefixes, "=" for whole names, "^" for all
// others, of both "^=". A port behind ':' is compared with the name's behind '/'.
bool nccl_selects(const std::string& list, const std::string& name);
// How long NCCL waits for an adapter that does not answer: 4.096 us x 2^timeout, retries + 1 times.
double retry_window_s(int ib_timeout, int ib_retry_count);

struct NodeFacts {
  std::string node;
  FabricFacts facts;
};
// Returns findings with the node (or the nodes, folded) in the entity. `flap_s`: how long a link may be down without
// ending a job. `fabric`: what the nodes are compared with; null: nothing.
std::vector<Finding> judge_config(const std::vector<NodeFacts>& nodes, double flap_s,
                                  const clos::Fabric* fabric = nullptr);

}  // namespace ms::net
