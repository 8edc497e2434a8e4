// Who sends to whom between hosts in a training step: the rings, transfers and all-to-alls of the groups of a mesh, as
// NCCL makes them between the NICs of hosts. Pure.
//
// A ring passes the hosts of a group in the order of their ranks, once for each member on a host, and each time enters
// and leaves by the NIC of that member (NCCL_CROSS_NIC=0). Transfers inside a host are not listed.
#pragma once

#include <string>
#include <vector>

#include "clos/fabric.h"
#include "mesh/config.h"

namespace ms::clos {

struct Transfer {
  int from_node = 0, from_nic = 0, to_node = 0, to_nic = 0;
  bool operator==(const Transfer&) const = default;
};

// The transfers proceed at one pace: those of a ring, because each passes on what the one before it delivers; those of
// an all-to-all, because each has the same bytes.
struct Channel {
  std::vector<Transfer> transfers;
};

// The channels of all groups of an axis, which run at the same time.
struct StepCollective {
  std::string axis;  // "tp", "dp", "edp", "cp", "pp" (one direction), "ep"
  std::vector<Channel> channels;
};

// Returns the collectives that pass the network, of ranks that fill one node after the other. Throws
// Error("mesh.size", user) as make_mesh() does, and Error("fabric.size", user) if the all-to-alls of an axis have more
// than 4,194,304 pairs of ranks. cp groups are rings unless mesh.cp_type is "all-to-all".
std::vector<StepCollective> step_flows(const mesh::MeshConfig& mesh, const Fabric& fabric);

}  // namespace ms::clos
