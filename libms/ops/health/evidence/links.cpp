#include "health/evidence/links.h"

#include <fmt/format.h>

#include <algorithm>

#include "health/evidence/scan.h"

namespace ms::health {
namespace {

std::vector<Link> ports(const Sysroot& root) {
  std::vector<Link> found;
  for (const std::string& device : root.list("/sys/class/infiniband")) {
    for (const std::string& port : root.list(fmt::format("/sys/class/infiniband/{}/ports", device))) {
      found.push_back(link_named(device + "/" + port));
    }
  }
  return found;
}

// Interfaces with hardware behind them.
std::vector<Link> interfaces(const Sysroot& root) {
  std::vector<Link> found;
  for (const std::string& name : root.list("/sys/class/net")) {
    if (root.exists(fmt::format("/sys/class/net/{}/device", name))) found.push_back(link_named(name));
  }
  return found;
}

}  // namespace

Link link_named(const std::string& name) {
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos) return {name, false, "/sys/class/net/" + name};
  return {name, true, fmt::format("/sys/class/infiniband/{}/ports/{}", name.substr(0, slash), name.substr(slash + 1))};
}

bool is_link_name(std::string_view name) {
  Scan scan(name);
  if (scan.name().empty() || name.starts_with('.')) return false;
  return scan.at_end() || (scan.literal("/") && scan.number() && scan.at_end());
}

std::vector<Link> watched_links(const Evidence& evidence) {
  std::vector<Link> all = interfaces(evidence.root());
  for (Link& port : ports(evidence.root())) all.push_back(std::move(port));
  for (const std::string& name : evidence.policy().expect.links) {
    const bool known = std::any_of(all.begin(), all.end(), [&](const Link& link) { return link.name == name; });
    if (!known && is_link_name(name) && evidence.root().exists(link_named(name).directory))
      all.push_back(link_named(name));
  }
  return all;
}

}  // namespace ms::health
