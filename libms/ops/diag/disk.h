// The file system of a directory: bandwidth of large blocks, and the latency of making a small one durable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ms::diag {

struct DiskPlan {
  std::int64_t most_bytes = std::int64_t{4} << 30;
  double seconds = 8;  // of writing, and of reading, each
  double fsync_s = 3;
  int threads = 4;
};

struct DiskSpeed {
  double write_gbps = 0, read_gbps = 0;  // GB/s (10^9 bytes)
  std::vector<double> fsync_s = {};      // of each 4 KiB write with fdatasync, sorted
  std::int64_t bytes = 0;                // written and read back
  std::int64_t num_wrong = 0;            // blocks that are not what was written
  bool direct = false;                   // past the page cache; else caches may have helped with reading
};

// Writes into `directory` files without a name, which are gone with the process that has them open, however that ends.
// Takes at most a twentieth of what is free there. Throws Error("diag.disk", storage) with what the system said.
DiskSpeed measure_disk(const std::string& directory, const DiskPlan& plan);

}  // namespace ms::diag
