// The memory of this node: what this process may have, and what is free.
#pragma once

#include <cstdint>
#include <optional>

#include "base/sysroot.h"

namespace ms {

struct HostMemory {
  std::int64_t total_bytes = 0;  // the least of MemTotal and the limits of the enclosing control groups
  std::int64_t free_bytes = 0;   // the least of MemAvailable and what each group leaves below its limit
  std::optional<std::int64_t> address_bytes = {};  // what 'ulimit -v' leaves of this process's address space
  std::int64_t stack_bytes = 0;                    // of a thread, 'ulimit -s'
  std::int64_t machine_bytes = 0;                  // MemTotal, whatever the control groups allow
};

// Each is 0 where the kernel does not report it.
HostMemory host_memory(const Sysroot& root);

}  // namespace ms
