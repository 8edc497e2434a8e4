// The process of a rank, and whether it still runs: ranks on one host can detect each other's death long before a
// deadline passes. Process identifiers are reused; together with the start time they are unique.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

namespace ms::comm {

// Plain bytes, exchanged between the ranks at start.
struct ProcessId {
  char host[64];                // zero-terminated
  std::uint64_t pid_namespace;  // containers of one host do not see each other's processes
  std::int64_t pid;
  std::uint64_t start_ticks;  // since boot
};
static_assert(std::is_trivially_copyable_v<ProcessId>);

ProcessId this_process();
bool same_host(const ProcessId& a, const ProcessId& b);
// Returns whether `other` has ended, as far as `self` can see: false if it is on another host. `proc` is where procfs
// is mounted.
bool has_died(const ProcessId& other, const ProcessId& self, const std::string& proc = "/proc");

}  // namespace ms::comm
