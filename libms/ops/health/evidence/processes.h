// Processes of users as /proc shows them: whose they are and for how long they have run. Nobody else is asked, since a
// directory of users across a network may not answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/sysroot.h"

namespace ms::health {

struct Process {
  std::string name;
  std::uint64_t user = 0;
  double cpu_s = 0;
  double memory_mib = 0;
  std::optional<double> age_s = {};
};

// nullopt: it is gone, or /proc does not say enough.
std::optional<Process> read_process(const Sysroot& root, const std::string& pid);

// "alice", or the number where /etc/passwd has no name.
std::string user_of(const Sysroot& root, const Process& process);

// "python3 of user alice (uid 1234, started 2h ago)": the name where /etc/passwd has it, the time where it is known.
std::string describe_process(const Sysroot& root, const Process& process);

}  // namespace ms::health
