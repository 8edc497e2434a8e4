// How much memory the bandwidth check may and must use.
#pragma once

#include <cstdint>
#include <optional>

#include "base/sysroot.h"

namespace ms::diag {

// All last-level caches of the node together; 0 where the kernel does not tell.
std::int64_t last_level_cache_bytes(const Sysroot& root);
// What could be had now without anybody being hurt: MemAvailable, and what every control group above us leaves.
std::int64_t free_memory_bytes(const Sysroot& root);

// Bytes of each of three arrays for a process that answers for `part` of the node; nullopt where a quarter of what is
// free does not even exceed the caches.
std::optional<std::int64_t> triad_array_bytes(std::int64_t cache_bytes, std::int64_t free_bytes, double part);

}  // namespace ms::diag
