// A node's own interfaces: their addresses, and their counters.
#pragma once

#include <string>
#include <vector>

#include "base/sysroot.h"
#include "link/channel.h"
#include "net/measure/pair.h"

namespace ms::net {

struct Interface {
  std::string name;
  link::Address address;  // port 0
};

// Returns one address of every interface that is up and whose name begins with `prefix`: IPv4 before IPv6, no loopback
// unless there is nothing else.
std::vector<Interface> interfaces(const std::string& prefix = {});
// Returns the name of the interface that has this address; "" if none has.
std::string interface_of(const link::Address& address);

int mtu_of(const Sysroot& root, const std::string& interface);  // 0: unknown
// Returns the counts since the node or the interface came up. Take two and subtract.
NodeCounts counts_of(const Sysroot& root, const std::string& interface);
NodeCounts operator-(const NodeCounts& a, const NodeCounts& b);
// Returns the packets that the kernel dropped because its receive backlog was full, over all interfaces.
std::int64_t backlog_drops(const Sysroot& root);

}  // namespace ms::net
