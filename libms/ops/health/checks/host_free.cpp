// The check host.free (check.h): memory that something holds before the job begins.
#include <fmt/format.h>

#include "base/host_memory.h"
#include "base/text.h"
#include "health/checks/check.h"

namespace ms::health {
namespace {

Result check_host_free(Evidence& evidence) {
  const HostMemory memory = host_memory(evidence.root());
  if (memory.total_bytes <= 0 || memory.free_bytes <= 0) return skipped("/proc/meminfo does not tell what is free");
  const auto total = static_cast<double>(memory.total_bytes), free = static_cast<double>(memory.free_bytes);
  const double percent = 100 * free / total, limit = evidence.policy().limits.memory_free_percent;
  const std::string seen = fmt::format("{} of {} are free", format_size(free), format_size(total));
  if (percent >= limit) return passed(seen);
  return judged({about("memory", Severity::warning, seen, percent, limit, "%")});
}

}  // namespace

extern constinit const Check kHostFree = {
    .code = "host.free",
    .summary = "memory in use before the job starts",
    .needs = "/proc/meminfo",
    .user_can_cause = true,
    .explain =
        "Compares the available memory, including caches, with the total: less than limits.memory_free_percent is a "
        "warning. Files in /dev/shm, huge pages or processes left by an earlier job reduce the memory of the next job, "
        "which is then killed when memory runs out.",
    .remedy = "Look at df /dev/shm, at HugePages_Total of /proc/meminfo, and for processes without a job.",
    .run = check_host_free};

}  // namespace ms::health
