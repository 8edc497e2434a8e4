#include "comm/start_nonce.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/hash.h"
#include "comm/process.h"
#include "slurm/launch.h"

namespace ms::comm {

// A requeued job has the numbers of its first start, but for the count of restarts. mpirun starts its processes in a
// step of its own on every other node, so steps tell only srun's starts apart.
std::string start_nonce(const std::function<const char*(const char*)>& variable) {
  Hasher hasher;
  const std::string_view launcher = slurm::launch_in(variable).launcher;
  for (const char* name : {"PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_ID"}) {
    const char* value = launcher == "mpirun" && std::string_view(name) == "SLURM_STEP_ID" ? nullptr : variable(name);
    hasher.update(fmt::format("{}={}\n", name, value == nullptr ? "" : value));
  }
  if (launcher.empty()) {
    const ProcessId self = this_process();
    hasher.update(fmt::format("{} {} {}", self.host, self.pid, self.start_ticks));
  }
  return hash_hex(hasher.digest());
}

std::string this_start_nonce() {
  return start_nonce([](const char* name) { return std::getenv(name); });
}

}  // namespace ms::comm
