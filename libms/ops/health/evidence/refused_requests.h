// Requests that a disk refused although it is well: it is locked, write-protected or being erased, was asked for blocks
// beyond its end, or has no WRITE SAME. The driver of the disk logs why, then the block layer calls it an error.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/finding.h"
#include "health/evidence/scan.h"

namespace ms::health {

struct DiskRefusal {
  std::uint64_t type, code;  // of NVMe's status
  Severity severity;         // note: no finding
  std::string_view message;
};

class RefusedRequests {
 public:
  void read(Scan line, double when_s);
  // Why the disk's request failed a moment ago; nullptr: that says nothing for the disk.
  const DiskRefusal* explain(const std::string& disk, double when_s) const;

 private:
  struct Last {
    const DiskRefusal* refusal;
    double when_s;
  };
  std::map<std::string, Last> by_disk_;
};

}  // namespace ms::health
