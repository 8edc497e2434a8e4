// The network interfaces of this node and what a TCP connection to their addresses carries.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/sysroot.h"

namespace ms::diag {

struct NicAddress {
  std::string interface;
  sockaddr_storage address{};  // port 0
  socklen_t length = 0;
};

// One address of each interface that is up and running and not the loopback, IPv4 before IPv6.
std::vector<NicAddress> nic_addresses(const Sysroot& root);

// Gbit/s of one connection to this address; throws Error("diag.nic", node) where there is none, or it stops.
double self_gbps(const NicAddress& nic, double seconds);

}  // namespace ms::diag
