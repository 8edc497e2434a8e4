// What a node knows of itself: the interface that an address belongs to, and what it has counted.
#pragma once

#include <string>
#include <vector>

#include "base/sysroot.h"
#include "net/measure/pair.h"
#include "net/transport/channel.h"

namespace ms::net {

struct Interface {
  std::string name;
  Address address;  // port 0
};

// One address of every interface that is up, IPv4 before IPv6, no loopback unless there is nothing else; only those
// whose names begin with `prefix`.
std::vector<Interface> interfaces(const std::string& prefix = {});
// Whose address this is; "" where it is nobody's.
std::string interface_of(const Address& address);

int mtu_of(const Sysroot& root, const std::string& interface);  // 0 where it is not told
// Since the node or the interface came up. Take two and subtract.
NodeCounts counts_of(const Sysroot& root, const std::string& interface);
NodeCounts operator-(const NodeCounts& a, const NodeCounts& b);
// Packets that the kernel dropped before it looked at them, of all interfaces, because there were too many.
std::int64_t backlog_drops(const Sysroot& root);

}  // namespace ms::net
