// The node's links, as sysfs shows them: a network interface ("eth0") or a port of an InfiniBand or RoCE adapter
// ("mlx5_0/1").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "health/evidence/evidence.h"

namespace ms::health {

struct Link {
  std::string name;
  bool is_port = false;  // of an RDMA adapter
  std::string directory;
};

Link link_named(const std::string& name);

// No interface has a name with other characters, and no link is named "../".
bool is_link_name(std::string_view name);

// Every physical interface, every port and every link of expect.links that is there, once.
std::vector<Link> watched_links(const Evidence& evidence);

}  // namespace ms::health
