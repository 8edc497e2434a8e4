// RDMA between adapters of this node, by perftest's ib_write_bw: a server and a client that talk to each other through
// the adapters, and never through the host's own network stack.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sysroot.h"
#include "diag/rates.h"

namespace ms::diag {

struct RdmaPort {
  std::string adapter;  // "mlx5_0"
  int port = 1;
  double gbps = 0;    // the rate of its link
  std::string model;  // "MT4129@400"
  std::string name() const;
};
std::vector<RdmaPort> active_ports(const Sysroot& root);

inline constexpr std::string_view kProvedFakePerftest = "a fake file tree and a fake perftest";  // Check::proved

struct MemoryNode {
  int number = 0;
  std::vector<int> cpus = {};
};
std::vector<MemoryNode> memory_nodes(const Sysroot& root);

// The average bandwidth of the last line that the client prints, in Gbit/s.
std::optional<double> bandwidth_in(std::string_view output);

inline constexpr double kRdmaDeadline_s = 10;  // of a run
struct RdmaRun {
  double gbps = -1;      // negative: there is no number
  std::string why = {};  // then
};
// Where both ends have their data; by default wherever the programs happen to run.
struct RdmaPlace {
  const MemoryNode* node = nullptr;
  int gpu = -1;
};
// Writes 2 GB from one port to another one, or to itself. `number` tells runs apart that may follow each other closely.
RdmaRun write_bandwidth(const std::string& tool, const RdmaPort& from, const RdmaPort& to, const RdmaPlace& place,
                        int number);

Rate rdma_rate(const std::string& entity, double gbps, const RdmaPort& port, const health::ActiveConfig& expect);
// Skipped where nothing could be measured.
health::Result rdma_result(const std::vector<Rate>& rates, const std::vector<std::string>& not_measured,
                           const Share& share, double min_fraction, const std::string& how);

}  // namespace ms::diag
