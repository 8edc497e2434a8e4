// The check gpu.busy (check.h): GPU memory that is in use.
#include "health/checks/check.h"
#include "health/checks/gpu_common.h"
#include "health/evidence/processes.h"

namespace ms::health {
namespace {

constexpr std::uint64_t kIdleMemoryBytes = std::uint64_t{1} << 30;
constexpr double kMib = 1 << 20;

Result check_gpu_busy(Evidence& evidence) {
  return each_gpu(
      evidence, "memory in use", [](const Gpu& gpu) { return gpu.memory_used_bytes.has_value(); },
      [&](const Gpu& gpu, std::vector<Finding>& findings) {
        const std::uint64_t used = *gpu.memory_used_bytes;
        if (used <= kIdleMemoryBytes) return;
        std::vector<std::string> users;
        for (const int pid : gpu.processes) {
          const std::optional<Process> process = read_process(evidence.root(), std::to_string(pid));
          users.push_back(process ? fmt::format("process {}, {}", pid, describe_process(evidence.root(), *process))
                                  : fmt::format("process {}", pid));
        }
        findings.push_back(about(gpu, Severity::warning,
                                 fmt::format("{} of its memory are in use{}", format_size(static_cast<double>(used)),
                                             users.empty() ? ", and the driver names no process"
                                                           : fmt::format(" by {}", fmt::join(users, "; "))),
                                 static_cast<double>(used) / kMib, static_cast<double>(kIdleMemoryBytes) / kMib,
                                 "MiB"));
      });
}

}  // namespace

extern constinit const Check kGpuBusy = {
    .code = "gpu.busy",
    .lane = Lane::gpu,
    .summary = "GPU memory in use",
    .needs = kNvml,
    .blame = Blame::user,
    .user_can_cause = true,
    .explain =
        "More than 1 GiB of a GPU's memory is in use. Before an exclusive job this is a process left by an earlier "
        "job, or memory that the driver did not free. On shared nodes, or while a job runs, it is normal. The driver "
        "supplies the names of the processes.",
    .remedy =
        "Ask the user of the process, or end it (kill PID, then kill -9 PID). If no process is named, try fuser -v "
        "/dev/nvidia*. If that shows no process, the driver kept the memory: reset the GPU.",
    .run = check_gpu_busy};

}  // namespace ms::health
