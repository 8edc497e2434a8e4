// The memory of this node: what a process may have, and what is free.
#pragma once

#include <cstdint>

#include "base/sysroot.h"

namespace ms {

struct HostMemory {
  std::int64_t total_bytes = 0;  // the least of MemTotal and the limits of the enclosing control groups
  std::int64_t free_bytes = 0;   // the least of MemAvailable and what each group leaves below its limit
};

// Both are 0 where the kernel does not report them.
HostMemory host_memory(const Sysroot& root);

}  // namespace ms
