#include "net/measure/interface.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>

#include "base/text.h"

namespace ms::net {
namespace {

std::vector<Interface> all_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    Interface interface {
      .name = i->ifa_name, .address = {}
    };
    const int family = i->ifa_addr->sa_family;
    if (family == AF_INET) {
      interface.address.length = sizeof(sockaddr_in);
    } else if (family == AF_INET6) {
      // A link-local address means nothing to a node that does not know the link.
      if (IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr)) continue;
      interface.address.length = sizeof(sockaddr_in6);
    } else {
      continue;
    }
    std::memcpy(&interface.address.storage, i->ifa_addr, interface.address.length);
    found.push_back(std::move(interface));
  }
  std::ranges::stable_sort(found, {}, [](const Interface& i) { return i.address.storage.ss_family != AF_INET; });
  return found;
}

std::int64_t number(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// A row of titles and a row of numbers, both begin with `name`.
std::map<std::string, std::int64_t> snmp(const Sysroot& root, std::string_view name) {
  std::map<std::string, std::int64_t> values;
  std::vector<std::string> titles;
  for (const std::string& line : split(root.read("/proc/net/snmp").value_or(""), '\n')) {
    if (!line.starts_with(name)) continue;
    const std::vector<std::string> words = split(line, ' ');
    if (titles.empty()) {
      titles = words;
    } else {
      for (std::size_t i = 1; i < std::min(words.size(), titles.size()); ++i) values[titles[i]] = number(words[i]);
    }
  }
  return values;
}

}  // namespace

std::vector<Interface> interfaces(const std::string& prefix) {
  std::vector<Interface> found, loopback;
  for (Interface& interface : all_addresses()) {
    if (!interface.name.starts_with(prefix)) continue;
    std::vector<Interface>& list = interface.name == "lo" ? loopback : found;
    if (std::ranges::none_of(list, [&](const Interface& other) { return other.name == interface.name; }))
      list.push_back(std::move(interface));
  }
  return found.empty() ? loopback : found;
}

std::string interface_of(const link::Address& address) {
  for (const Interface& interface : all_addresses())
    if (interface.address.host() == address.host()) return interface.name;
  return "";
}

int mtu_of(const Sysroot& root, const std::string& interface) {
  return static_cast<int>(root.read_int("/sys/class/net/" + interface + "/mtu").value_or(0));
}

NodeCounts counts_of(const Sysroot& root, const std::string& interface) {
  const std::string directory = "/sys/class/net/" + interface + "/";
  const auto count = [&](std::string_view name) { return root.read_int(directory + std::string(name)).value_or(0); };
  std::map<std::string, std::int64_t> tcp = snmp(root, "Tcp:");
  return {.carrier_losses = count("carrier_down_count"),
          .carrier_gains = count("carrier_up_count"),
          .errors = count("statistics/rx_crc_errors") + count("statistics/rx_frame_errors") +
                    count("statistics/rx_errors") + count("statistics/tx_errors"),
          .retransmits = tcp["RetransSegs"],
          .segments = tcp["OutSegs"]};
}

NodeCounts operator-(const NodeCounts& a, const NodeCounts& b) {
  return {.carrier_losses = a.carrier_losses - b.carrier_losses,
          .carrier_gains = a.carrier_gains - b.carrier_gains,
          .errors = a.errors - b.errors,
          .retransmits = a.retransmits - b.retransmits,
          .segments = a.segments - b.segments};
}

std::int64_t backlog_drops(const Sysroot& root) {
  std::int64_t drops = 0;
  for (const std::string& line : split(root.read("/proc/net/softnet_stat").value_or(""), '\n')) {
    const std::vector<std::string> words = split(line, ' ');
    std::int64_t value = 0;
    if (words.size() > 1) std::from_chars(words[1].data(), words[1].data() + words[1].size(), value, 16);
    drops += value;
  }
  return drops;
}

}  // namespace ms::net
