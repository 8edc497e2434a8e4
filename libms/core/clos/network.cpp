#include "clos/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/rng.h"

namespace ms::clos {
namespace {

constexpr int kMostHosts = 65536;                // of the addresses
constexpr std::int64_t kMostLinks = 1 << 20;     // ports of NICs, and uplinks of leaf switches
constexpr std::size_t kMostFlows = 1 << 23;      // of an axis
constexpr std::uint32_t kQueuePairs = 0xFFFFFF;  // numbers of queue pairs have 24 bits

}  // namespace

Network::Network(const Fabric& fabric, int hosts) : fabric_(fabric) {
  const std::int64_t sets = (hosts + fabric.leaf.hosts - 1) / fabric.leaf.hosts;
  const std::int64_t leaves = sets * fabric.leaves_per_set();
  const std::int64_t ports = hosts * fabric.host.nics * fabric.host.ports;
  if (hosts > kMostHosts || std::max(ports, leaves * fabric.leaf.uplinks) > kMostLinks) {
    throw user_error("fabric.size", fmt::format("{} hosts with {} ports under {} leaf switches with {} uplinks each: "
                                                "at most {} hosts, {} ports and as many uplinks are planned",
                                                hosts, ports, leaves, fabric.leaf.uplinks, kMostHosts, kMostLinks));
  }
  leaves_ = static_cast<std::uint32_t>(leaves);
  uplinks_ = static_cast<std::uint32_t>(fabric.leaf.uplinks);
  spines_ = static_cast<std::uint32_t>(fabric.spine.switches);
  ports_ = static_cast<std::uint32_t>(ports);
  first_uplink_ = 2 * ports_;
  capacity_.assign(first_uplink_, fabric.host.port_gbps);
  if (fabric.ecmp.hash == "adaptive") {
    capacity_.resize(first_uplink_ + 2 * leaves_, static_cast<double>(uplinks_) * fabric.leaf.uplink_gbps);
    return;
  }
  capacity_.resize(first_uplink_ + 2 * leaves_ * uplinks_, fabric.leaf.uplink_gbps);
  hash_.emplace(fabric.ecmp);
  for (std::uint32_t s = 0; s < leaves_ + spines_; ++s) seeds_.push_back(hash_->seed_of(s));
}

std::uint32_t Network::leaf_of(int host, int nic) const {
  const auto set = static_cast<std::uint32_t>(host / fabric_.leaf.hosts);
  return fabric_.leaf.rails ? set * static_cast<std::uint32_t>(fabric_.host.nics) + static_cast<std::uint32_t>(nic)
                            : set;
}

std::uint32_t Network::port_of(int host, int nic, int port) const {
  return static_cast<std::uint32_t>((host * fabric_.host.nics + nic) * fabric_.host.ports + port);
}

void Network::add_path(const FiveTuple& flow, std::uint32_t from_leaf, std::uint32_t to_leaf, double share,
                       std::vector<Load>& loads) const {
  if (!hash_) {
    loads.push_back({first_uplink_ + from_leaf, share});
    loads.push_back({first_uplink_ + leaves_ + to_leaf, share});
    return;
  }
  const std::uint32_t up = hash_->choose(flow, seeds_[from_leaf], uplinks_), spine = up % spines_;
  const std::uint32_t down = hash_->choose(flow, seeds_[leaves_ + spine], uplinks_ / spines_) * spines_ + spine;
  loads.push_back({first_uplink_ + from_leaf * uplinks_ + up, share});
  loads.push_back({first_uplink_ + (leaves_ + to_leaf) * uplinks_ + down, share});
}

Routed Network::route(const StepCollective& collective, std::span<const int> position, std::uint64_t start) const {
  const int ports = static_cast<int>(fabric_.host.ports), pairs = static_cast<int>(fabric_.roce.queue_pairs);
  const double share = 1.0 / (ports * pairs);
  const std::uint64_t key = rng_key("queue pair numbers of " + collective.axis);
  std::vector<std::uint32_t> next(ports_);
  for (std::uint32_t port = 0; port < ports_; ++port)
    next[port] = static_cast<std::uint32_t>(random_u64(start, key, port)) & kQueuePairs;
  const auto address = [&](int host, int nic, int port) {
    return 10U << 24U | static_cast<std::uint32_t>(nic * ports + port) << 16U | static_cast<std::uint32_t>(host);
  };
  std::size_t flows = 0;
  for (const Channel& channel : collective.channels)
    flows += channel.transfers.size() * static_cast<std::size_t>(ports * pairs);
  if (flows > kMostFlows)
    throw user_error("fabric.size",
                     fmt::format("{} flows of {}: at most {} are planned", flows, collective.axis, kMostFlows),
                     "roce.queue_pairs multiplies them");
  Routed routed{.loads = {}, .flows = flows, .crossing = {}};
  std::vector<Load>& loads = routed.loads.loads;
  for (const Channel& channel : collective.channels) {
    for (const Transfer& transfer : channel.transfers) {
      const int from = position[static_cast<std::size_t>(transfer.from_node)];
      const int to = position[static_cast<std::size_t>(transfer.to_node)];
      const std::uint32_t from_leaf = leaf_of(from, transfer.from_nic), to_leaf = leaf_of(to, transfer.to_nic);
      for (int p = 0; p < ports * pairs; ++p) {
        const int port = p / pairs;
        const std::uint32_t out = port_of(from, transfer.from_nic, port), in = port_of(to, transfer.to_nic, port);
        const std::uint32_t local = next[out]++ & kQueuePairs, remote = next[in]++ & kQueuePairs;
        loads.push_back({out, share});
        loads.push_back({ports_ + in, share});
        if (from_leaf == to_leaf) continue;
        routed.crossing.push_back({static_cast<std::uint32_t>(routed.loads.channels()), loads.size()});
        add_path({.src_ip = address(from, transfer.from_nic, port),
                  .dst_ip = address(to, transfer.to_nic, port),
                  .src_port = roce_source_port(local, remote)},
                 from_leaf, to_leaf, share, loads);
      }
    }
    routed.loads.end_channel();
  }
  return routed;
}

}  // namespace ms::clos
