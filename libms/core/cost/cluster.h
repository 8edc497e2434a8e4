// Cluster files: what the machines that a simulation runs on can do, ms-cluster(5). One file describes one cluster;
// whatever a simulated time depends on besides the training configuration stands in it. configs/clusters/ has some, and
// ms-train calibrate writes one for the machine that it runs on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"

namespace ms::cost {

// [device]: one rank's. An efficiency curve is a list of "size:share" points, between which it is interpolated over the
// logarithm of the size; beyond its ends it is level.
struct DeviceConfig {
  std::string name;
  std::int64_t memory_bytes = 0;
  double tflops = 0;
  double tflops_fp32 = 0;
  double tflops_fp8 = 0;
  double memory_gb_s = 0;
  double launch_s = 0;
  std::vector<std::string> gemm{"1:1"};
  std::vector<std::string> gemm_fp8{"1:1"};
  std::vector<std::string> attention{"1:1"};
  std::vector<std::string> memory{"1:1"};
  std::vector<std::string> classes;
};

inline constexpr Field<DeviceConfig> kDeviceFields[] = {
    {.key = "name", .member = &DeviceConfig::name, .doc = "Name of the device.", .required = true},
    {.key = "capacity",
     .member = &DeviceConfig::memory_bytes,
     .doc = "Memory of the device that a rank can use.",
     .unit = Unit::bytes,
     .min = 1,
     .max = 1e15,
     .required = true},
    {.key = "tflops",
     .member = &DeviceConfig::tflops,
     .doc = "Peak of dense 16-bit GEMMs in TFLOP/s, the denominator of MFU.",
     .min = 1e-6,
     .max = 1e6,
     .required = true},
    {"tflops_fp32", &DeviceConfig::tflops_fp32, "Peak of fp32 GEMMs in TFLOP/s; 0: a sixteenth of tflops.", Unit::none,
     0, 1e6},
    {"tflops_fp8", &DeviceConfig::tflops_fp8,
     "Peak of dense FP8 GEMMs in TFLOP/s; 0: the device has none, and train.fp8 is not simulated.", Unit::none, 0, 1e6},
    {.key = "memory_rate",
     .member = &DeviceConfig::memory_gb_s,
     .doc = "Peak bandwidth of the memory in GB/s.",
     .min = 1e-3,
     .max = 1e6,
     .required = true},
    {"launch", &DeviceConfig::launch_s, "Fixed overhead of every operation.", Unit::seconds, 0, 1},
    {.key = "gemm",
     .member = &DeviceConfig::gemm,
     .doc = "Efficiency of GEMMs as a share of the peak, by FLOPs.",
     .old_key = "products"},
    {"gemm_fp8", &DeviceConfig::gemm_fp8,
     "The same for FP8 GEMMs, as a share of tflops_fp8; rounding of operands is not part of it."},
    {"attention", &DeviceConfig::attention,
     "Efficiency of attention as a share of the peak, by the FLOPs of unmasked pairs."},
    {"memory", &DeviceConfig::memory,
     "Efficiency of all other operations as a share of the memory's peak, by bytes moved."},
    {"classes", &DeviceConfig::classes,
     "Slow-down of operations other than GEMMs and attention, by class, as \"class:times\": norm, activation, "
     "embedding, loss, elementwise, optimizer, init. Default: 1."},
};

// [node]: a machine, its devices, and the links between them.
struct NodeConfig {
  std::int64_t ranks = 1;
  std::int64_t cores = 0;
  double gb_s = 0;
  double latency_s = 0;
  double step_s = 0;
};

inline constexpr Field<NodeConfig> kNodeFields[] = {
    {.key = "ranks", .member = &NodeConfig::ranks, .doc = "Ranks on a node.", .min = 1, .max = 4096, .required = true},
    {"cores", &NodeConfig::cores,
     "Number of ranks that can compute at once on the node's processors; 0: each rank has its own device. If the node "
     "has more ranks than this, a transfer between two of them also occupies the processors of both. It occupies them "
     "for the time that follows from latency and rate.",
     Unit::none, 0, 4096},
    {"rate", &NodeConfig::gb_s, "Bandwidth of a rank to ranks of its node in GB/s, in each direction; 0: no such link.",
     Unit::none, 0, 1e6},
    {"latency", &NodeConfig::latency_s, "Latency of one hop.", Unit::seconds, 0, 1},
    {"step", &NodeConfig::step_s, "Time between two steps in which devices are idle and the host works.", Unit::seconds,
     0, 60},
};

// [network]: between nodes.
struct NetworkConfig {
  double gb_s = 0;
  double latency_s = 0;
  std::int64_t nodes_per_leaf = 0;
  double spine_share = 1;
  double spine_latency_s = 0;
};

inline constexpr Field<NetworkConfig> kNetworkFields[] = {
    {"rate", &NetworkConfig::gb_s,
     "Bandwidth of a rank's share of its node's network cards in GB/s, in each direction; 0: nodes are not connected.",
     Unit::none, 0, 1e6},
    {"latency", &NetworkConfig::latency_s, "Latency of one hop between nodes under the same leaf switch.",
     Unit::seconds, 0, 1},
    {"nodes_per_leaf", &NetworkConfig::nodes_per_leaf, "Nodes under a leaf switch (or a rail's set of them); 0: all.",
     Unit::none, 0, 1e6},
    {"spine_share", &NetworkConfig::spine_share,
     "Share of the rate that remains for traffic across leaf switches, after uplinks and collisions of flows.",
     Unit::none, 1e-3, 1},
    {"spine_latency", &NetworkConfig::spine_latency_s,
     "Latency of one hop between nodes under different leaf switches.", Unit::seconds, 0, 1},
};

// [noise]: how nodes differ, and forecasts from steps.
struct NoiseConfig {
  double spread = 0;
  double error = 0;
};

inline constexpr Field<NoiseConfig> kNoiseFields[] = {
    {"spread", &NoiseConfig::spread,
     "Standard deviation of ranks' speed, relative to it. If one simulated rank represents a group of ranks, it is as "
     "slow as the expected slowest rank of the group.",
     Unit::none, 0, 1},
    {"error", &NoiseConfig::error,
     "Share of the step by which four of five forecasts with this file are off at most, from steps that were not used "
     "to "
     "make it; simulate then gives an interval. 0: not known.",
     Unit::none, 0, 0.9},
};

struct Cluster {
  DeviceConfig device;
  NodeConfig node;
  NetworkConfig network;
  NoiseConfig noise;
};

// Binds every section; `cluster` outlives the schema.
void bind(ConfigSchema& schema, Cluster& cluster);

// Reads a cluster file, with assignments ("network.rate=25") on top. Throws Error("config.invalid", user) with every
// problem.
Cluster load_cluster(const std::string& path, const std::vector<std::string>& assignments);
// As a cluster file.
std::string to_toml(const Cluster& cluster);
// The same from a text; `name` stands for it in messages.
Cluster load_cluster_text(std::string_view text, const std::string& name, const std::vector<std::string>& assignments);

}  // namespace ms::cost
