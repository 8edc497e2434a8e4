// Fabric files: the RoCE network between the hosts of a job as a Clos network of two levels, ms-fabric(5). ms-netcheck
// plan and ms-train simulate --fabric read them. configs/fabrics/ has some. Rates are in Gbit/s.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"

namespace ms::clos {

// [host]. Defaults: a DGX H100 or HGX H100, eight GPUs with a 400 Gbit/s ConnectX-7 each (NVIDIA's data sheets).
struct HostConfig {
  std::int64_t ranks = 8, nics = 8, ports = 1;
  double port_gbps = 400;
  bool operator==(const HostConfig&) const = default;
};

inline constexpr Field<HostConfig> kHostFields[] = {
    {"ranks", &HostConfig::ranks, "Ranks (GPUs) of a host.", Unit::none, 1, 64},
    {"nics", &HostConfig::nics,
     "NICs of a host. Rank r of a host uses NIC r x nics / ranks, so nics divides ranks. Describe several NICs of a "
     "rank as ports of one NIC.",
     Unit::none, 1, 64},
    {"ports", &HostConfig::ports,
     "Ports of a NIC, which share its traffic evenly: 2 for a 400 Gbit/s NIC that is split into 2 x 200 Gbit/s.",
     Unit::none, 1, 4},
    {"port_rate", &HostConfig::port_gbps, "Rate of a port in Gbit/s.", Unit::none, 1, 10000},
};

// [leaf]. Defaults: a 64 x 400 Gbit/s switch (Tomahawk 4) with as many links up as down, as in section 3.6 of the
// MegaScale paper (arXiv 2402.15627).
struct LeafConfig {
  std::int64_t hosts = 32;
  bool rails = true;
  std::int64_t uplinks = 32;
  double uplink_gbps = 400;
  bool operator==(const LeafConfig&) const = default;
};

inline constexpr Field<LeafConfig> kLeafFields[] = {
    {"hosts", &LeafConfig::hosts, "Hosts under a leaf switch, or with rails under a set of them.", Unit::none, 1, 4096},
    {"rails", &LeafConfig::rails,
     "Rail-optimized: NIC n of all hosts of a set is connected to leaf switch n of the set. false: all NICs of a host "
     "are connected to one leaf switch."},
    {"uplinks", &LeafConfig::uplinks, "Uplinks of a leaf switch.", Unit::none, 1, 512},
    {"uplink_rate", &LeafConfig::uplink_gbps, "Rate of an uplink in Gbit/s.", Unit::none, 1, 10000},
};

// [spine].
struct SpineConfig {
  std::int64_t switches = 32;
  bool operator==(const SpineConfig&) const = default;
};

inline constexpr Field<SpineConfig> kSpineFields[] = {
    {"switches", &SpineConfig::switches,
     "Spine switches. Uplink u of every leaf switch is connected to spine u mod switches, so switches divides "
     "leaf.uplinks.",
     Unit::none, 1, 512},
};

// [roce]. Defaults: NCCL's (2.20 and later).
struct RoceConfig {
  std::int64_t queue_pairs = 1;
  bool pxn = true;
  bool operator==(const RoceConfig&) const = default;
};

inline constexpr Field<RoceConfig> kRoceFields[] = {
    {"queue_pairs", &RoceConfig::queue_pairs,
     "Queue pairs of a connection on each port, which share its traffic evenly: NCCL_IB_QPS_PER_CONNECTION.",
     Unit::none, 1, 128},
    {"pxn", &RoceConfig::pxn,
     "With rails, point-to-point transfers and all-to-alls leave a host through the NIC on the receiver's rail "
     "(NCCL_PXN_DISABLE=0); false: through the sender's own NIC."},
};

// [ecmp].
struct EcmpConfig {
  std::string hash = "crc32";
  std::vector<std::string> fields{"src_ip", "dst_ip", "protocol", "src_port", "dst_port"};
  std::int64_t seed = 0;
  bool same_seed = false;
  bool operator==(const EcmpConfig&) const = default;
};

inline constexpr Field<EcmpConfig> kEcmpFields[] = {
    {.key = "hash",
     .member = &EcmpConfig::hash,
     .doc = "How a switch chooses one of several links for a flow. crc32: CRC-32 of IEEE 802.3; crc16: CRC-16 with "
            "polynomial 0x1021; both modulo the number of links, with the switch's seed as the initial value. uniform: "
            "an ideal hash. adaptive: every packet takes the least loaded one (adaptive routing, packet spraying).",
     .choices = {"crc32", "crc16", "uniform", "adaptive"}},
    {.key = "fields",
     .member = &EcmpConfig::fields,
     .doc = "Fields of a packet that crc32 and crc16 read. The source port is the only one in which the queue pairs of "
            "a connection differ.",
     .choices = {"src_ip", "dst_ip", "protocol", "src_port", "dst_port"}},
    {"seed", &EcmpConfig::seed, "The seeds of the switches follow from this number.", Unit::none, 0, 4294967295.0},
    {"same_seed", &EcmpConfig::same_seed, "All switches have the same seed, as they do if it is never set."},
};

struct Fabric {
  HostConfig host;
  LeafConfig leaf;
  SpineConfig spine;
  RoceConfig roce;
  EcmpConfig ecmp;

  int leaves_per_set() const { return leaf.rails ? static_cast<int>(host.nics) : 1; }
  // The rate at which the hosts under a full leaf switch can send, relative to its uplinks; 1 or less: no
  // oversubscription.
  double oversubscription() const;
  bool operator==(const Fabric&) const = default;
};

// Binds every section; `fabric` outlives the schema.
void bind(ConfigSchema& schema, Fabric& fabric);

// Reads a fabric file, with assignments ("leaf.uplinks=16") on top. Throws Error("config.invalid", user) with every
// problem.
Fabric load_fabric(const std::string& path, const std::vector<std::string>& assignments);
// The same from a text; `name` stands for it in messages.
Fabric load_fabric_text(std::string_view text, const std::string& name, const std::vector<std::string>& assignments);

}  // namespace ms::clos
