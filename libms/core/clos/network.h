// The links of a fabric, and the path of every flow: a queue pair of a connection between two NICs. Pure.
//
// Host h has the address 10.(n x ports + p).(h / 256).(h mod 256) on port p of NIC n. A leaf switch hashes flows to
// hosts under other leaf switches to its uplinks; the spine hashes them to its links to the receiver's leaf switch, of
// which there are leaf.uplinks / spine.switches. With adaptive routing the uplinks of a leaf switch are one link with
// the sum of their rates.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "clos/fair_share.h"
#include "clos/hash.h"
#include "clos/step_flows.h"

namespace ms::clos {

// A queue pair whose NICs are under different leaf switches: its loads on switch links are `first` (up) and the next
// one (down) of Routed::loads.
struct CrossingFlow {
  std::uint32_t channel = 0;
  std::size_t first = 0;
};
struct Routed {
  Loads loads;                         // the shares of a transfer's flows add up to 1
  std::size_t flows = 0;               // queue pairs
  std::vector<CrossingFlow> crossing;  // those of them that pass spine switches
};

class Network {
 public:
  // Hosts are numbered from 0; leaf.hosts neighbours are under the same leaf switches. Throws Error("fabric.size",
  // user) if there are more than 65,536 hosts, or 1,048,576 ports of NICs or uplinks.
  Network(const Fabric& fabric, int hosts);

  // Gbit/s by link.
  std::span<const double> capacity() const { return capacity_; }
  bool between_switches(std::uint32_t link) const { return link >= first_uplink_; }

  // Returns the paths of a collective's flows if node n is host position[n]. `start` stands for a start of the job: the
  // numbers of queue pairs follow from it. They rise on each port from a random one. Throws
  // Error("fabric.size", user) if there are more than 8,388,608 flows.
  Routed route(const StepCollective& collective, std::span<const int> position, std::uint64_t start) const;

 private:
  std::uint32_t leaf_of(int host, int nic) const;
  std::uint32_t port_of(int host, int nic, int port) const;
  void add_path(const FiveTuple& flow, std::uint32_t from_leaf, std::uint32_t to_leaf, double share,
                std::vector<Load>& loads) const;

  Fabric fabric_;
  std::optional<EcmpHash> hash_;      // absent: adaptive routing
  std::vector<std::uint32_t> seeds_;  // of leaf switches, then of spine switches
  std::uint32_t leaves_ = 0, uplinks_ = 0, spines_ = 0, ports_ = 0, first_uplink_ = 0;
  std::vector<double> capacity_;
};

}  // namespace ms::clos
