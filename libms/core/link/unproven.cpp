#include "link/unproven.h"

#include <algorithm>

namespace ms::link {

void Unproven::add(Id id, const std::string& host) {
  hosts_[id] = host;
  by_host_[host].insert(id);
}

void Unproven::remove(Id id) {
  const auto found = hosts_.find(id);
  if (found == hosts_.end()) return;
  const auto of_host = by_host_.find(found->second);
  of_host->second.erase(id);
  if (of_host->second.empty()) by_host_.erase(of_host);
  hosts_.erase(found);
}

Unproven::Id Unproven::to_evict() const {
  const auto most = std::ranges::max_element(by_host_, {}, [](const auto& host) { return host.second.size(); });
  return *most->second.begin();
}

}  // namespace ms::link
