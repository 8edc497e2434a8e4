// Counters of ports and interfaces: two snapshots are compared and the growth is judged. Files that a port does not
// have, or that the kernel refuses to a restricted function (EINVAL), are remembered and not tried again.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/finding.h"
#include "base/sysroot.h"

namespace ms::net {

struct PortCounts {
  bool is_up = true;                           // ACTIVE, or its carrier is there
  bool is_hardware = true;                     // virtual interfaces may come and go
  std::map<std::string, std::int64_t> values;  // by the counter's name
  bool operator==(const PortCounts&) const = default;
};

struct Snapshot {
  double wall_s = 0;
  std::map<std::string, PortCounts> ports;  // "mlx5_0/1", "eth0"
  std::vector<std::string> restricted;      // "mlx5_0/1 symbol_error": is there, and gives no number
  bool operator==(const Snapshot&) const = default;
};

class CounterReader {
 public:
  explicit CounterReader(Sysroot root) : root_(std::move(root)) {}
  // All ports of /sys/class/infiniband, and all interfaces of /sys/class/net that are hardware or have a carrier (no
  // loopback).
  Snapshot read(double wall_s);

 private:
  void read_file(const std::string& path, const std::string& name, PortCounts& counts);
  Sysroot root_;
  std::set<std::string> refused_;  // paths
};

// One counter's rule: growth above `per_hour` is a finding. The table is what the manual prints.
struct CounterRule {
  std::string_view name;
  double per_hour;
  Severity severity;
  std::string_view meaning;
};
const std::vector<CounterRule>& counter_rules();

// Returns findings for the counters that grew too fast between two snapshots. Snapshots less than an hour apart are
// judged by the limit of a whole hour, so that one event within a second does not count as thousands an hour; a limit
// of 0 is exceeded by any event. A counter that decreased was reset, and counts from 0. A port that is gone, or no
// longer up, is a finding of its own.
std::vector<Finding> judge_growth(const Snapshot& before, const Snapshot& after);

// Watches snapshots for ports that were down.
class FlapWatch {
 public:
  // Downs shorter than `least_s` are reported only if the port's own counter has them.
  explicit FlapWatch(double least_s) : least_s_(least_s) {}
  void see(const Snapshot& snapshot);
  // Returns a finding for each port that was down, or whose counter shows a loss between two snapshots.
  std::vector<Finding> findings() const;

 private:
  struct Port {
    double down_since_s = -1;  // negative: up
    int downs = 0;
    double longest_s = 0, first_s = 0;
    std::int64_t counted_before = -1, counted = 0;  // losses by the port's own counter
  };
  double least_s_;
  double begin_s_ = -1, now_s_ = 0;
  std::map<std::string, Port> ports_;
};

// Snapshots of several nodes, from the first to the last: growth and flaps.
class CounterWatch {
 public:
  explicit CounterWatch(double least_flap_s) : least_flap_s_(least_flap_s) {}
  // Sets the snapshots that growth is counted from; by default it is each node's first one.
  void start(std::map<std::string, Snapshot> snapshots) { first_ = std::move(snapshots); }
  void see(const std::string& node, const Snapshot& snapshot);
  const std::map<std::string, Snapshot>& last() const { return last_; }
  // Reports each loss of a link once. With several nodes, entities begin with the node.
  std::vector<Finding> findings() const;

 private:
  double least_flap_s_;
  std::map<std::string, Snapshot> first_, last_;
  std::map<std::string, FlapWatch> flaps_;
};

}  // namespace ms::net
