// How much memory the bandwidth check may and must use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/sysroot.h"
#include "diag/pace.h"

namespace ms::diag {

// The last-level caches. A virtual machine with a few cores of a large socket often reports all of the socket's cache:
// what is counted of that is what so many cores can have.
struct Caches {
  std::int64_t reported_bytes = 0;  // 0 where the kernel does not report it
  std::int64_t counted_bytes = 0;
  bool is_slice() const { return counted_bytes < reported_bytes; }
  std::string note() const;  // what was counted of what; empty if all
};
Caches last_level_caches(const Sysroot& root);

bool is_virtual(const Sysroot& root);

// The rounds of perf.memory for a process that loads `part` of the node: a pass of the triad, by bytes of each of the
// three arrays. nullopt where a quarter of the free memory does not exceed the caches.
std::optional<Work> triad_work(std::int64_t cache_bytes, std::int64_t free_bytes, double part);

}  // namespace ms::diag
