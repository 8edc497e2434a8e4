// Reads the samples that ms-diag collect kept of a site's nodes: a directory for each node, in it a file for each day
// in UTC (day_file.h). The files may be damaged or somebody else's: nothing in them is trusted, and memory is bounded.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace ms::health {

// The samples of one device. A device that was replaced (its facts changed) is another series.
struct Series {
  std::string node = {};
  std::string device = {};                        // "": the host; "gpu0", "net/eth0", "ib/mlx5_0/1", "disk/nvme0"
  std::map<std::string, std::string> facts = {};  // what does not change: "uuid", "model", "pci"
  std::vector<std::string> columns = {};          // "temperature_c"; columns.h lists them
  std::vector<double> times = {};                 // seconds since 1970, strictly ascending
  std::vector<float> values = {};                 // times x columns, row by row; NaN: not known at that time

  std::size_t rows() const { return times.size(); }
  float at(std::size_t row, std::size_t column) const { return values[row * columns.size() + column]; }
};

// The nodes of the directory, sorted. Throws Error("telemetry.read", user) where it is not there or cannot be read.
std::vector<std::string> telemetry_nodes(const std::string& directory);

// One node's samples with from_s <= time < to_s, the host first. Damaged parts of files are left out; `notes`, where
// given, gets a line for each file of which something was. Throws Error("telemetry.read", user) where the span holds
// more than 256 MiB of files or would take more than 512 MiB of memory: ask for less.
std::vector<Series> read_telemetry(const std::string& directory, const std::string& node, double from_s, double to_s,
                                   std::vector<std::string>* notes = nullptr);

}  // namespace ms::health
