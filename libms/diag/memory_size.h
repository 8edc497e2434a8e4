// How much memory the bandwidth check may and must use.
#pragma once

#include <cstdint>
#include <optional>

#include "base/sysroot.h"

namespace ms::diag {

// Returns the total size of the node's last-level caches; 0 where the kernel does not report it.
std::int64_t last_level_cache_bytes(const Sysroot& root);

// Returns the size of each of the three arrays for a process that loads `part` of the node; nullopt where a quarter of
// the free memory does not exceed the caches.
std::optional<std::int64_t> triad_array_bytes(std::int64_t cache_bytes, std::int64_t free_bytes, double part);

}  // namespace ms::diag
