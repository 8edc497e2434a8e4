#include "driver/known_lines.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "slurm/hostlist.h"

namespace ms::driver {
namespace {

// First match wins: what is certain stands before what merely goes with it.
constexpr std::array kKnownLines = std::to_array<KnownLine>({
    // The device says that it is broken.
    {"uncorrectable ECC error encountered", "gpu_ecc", Blame::gpu, true},
    {"CUDA_ERROR_ECC_UNCORRECTABLE", "gpu_ecc", Blame::gpu, true},
    {"uncorrectable NVLink error", "gpu_nvlink", Blame::gpu, true},
    {"CUDA_ERROR_NVLINK_UNCORRECTABLE", "gpu_nvlink", Blame::gpu, true},
    {"hardware stack error", "gpu_hardware", Blame::gpu, true},
    {"CUDA_ERROR_HARDWARE_STACK_ERROR", "gpu_hardware", Blame::gpu, true},
    {"GPU has fallen off the bus", "gpu_lost", Blame::gpu, true},
    {"GPU is lost", "gpu_lost", Blame::gpu, true},
    {"no CUDA-capable device is detected", "gpu_missing", Blame::gpu, true},
    {"CUDA driver version is insufficient", "gpu_driver", Blame::node, true},
    {"system not yet initialized", "gpu_fabric_manager", Blame::node, true},
    // The program's own mistake: another node would fail the same way.
    {"CUDA out of memory", "gpu_memory", Blame::user, false},
    {"torch.OutOfMemoryError", "gpu_memory", Blame::user, false},
    {"an illegal memory access was encountered", "gpu_illegal_address", Blame::bug, false},
    {"device-side assert triggered", "gpu_assert", Blame::user, false},
    {"no kernel image is available", "gpu_architecture", Blame::user, false},
    {"invalid device ordinal", "gpu_count", Blame::user, false},
    {"ModuleNotFoundError:", "python_module", Blame::user, false},
    {"SyntaxError:", "python_syntax", Blame::user, false},
    {"FileNotFoundError:", "missing_file", Blame::user, false},
    // May be the hardware or not: looked at before anybody is accused.
    {"unspecified launch failure", "gpu_launch", Blame::gpu, false},
    {"CUDA_ERROR_UNKNOWN", "gpu_unknown", Blame::gpu, false},
    {"CUBLAS_STATUS_EXECUTION_FAILED", "gpu_launch", Blame::gpu, false},
    {"CUDNN_STATUS_EXECUTION_FAILED", "gpu_launch", Blame::gpu, false},
    {"Unable to determine the device handle", "gpu_lost", Blame::gpu, false},
    // The fabric, or the peer behind it.
    {"NET/IB : Got completion from peer", "ib_completion", Blame::fabric, false},
    {"IBV_WC_RETRY_EXC_ERR", "ib_retry", Blame::fabric, false},
    {"Call to ibv_modify_qp failed", "ib_qp", Blame::fabric, false},
    {"No space left on device", "storage_full", Blame::storage, false},
    {"Input/output error", "storage_io", Blame::storage, false},
    {"Stale file handle", "storage_stale", Blame::storage, false},
    {"Read-only file system", "storage_read_only", Blame::storage, false},
    {"Watchdog caught collective operation timeout", kCollectiveTimeout, Blame::peer, false},
    {"ncclRemoteError", "nccl_peer", Blame::peer, false},
    {"ncclSystemError", "nccl_system", Blame::peer, false},
    {"Connection reset by peer", "peer_closed", Blame::peer, false},
    {"Connection closed by peer", "peer_closed", Blame::peer, false},
    {"comm.peer_lost", "peer_lost", Blame::peer, false},
    {"oom-kill event", "host_memory", Blame::node, false},
    {"oom_kill", "host_memory", Blame::node, false},
    {"MPI_ABORT was invoked", "mpi_abort", Blame::peer, false},
    {"PMIX ERROR", "pmix", Blame::slurm, false},
    {"already completing or completed", kJobEnds, Blame::slurm, false},
    {"Requested node configuration is not available", "slurm_nodes", Blame::slurm, false},
    {"Node failure on", "slurm_node_failure", Blame::slurm, false},
    {"Unable to create step for job", "slurm_step", Blame::slurm, false},
    {"Unable to contact slurm controller", "slurm_controller", Blame::slurm, false},
    {"launch failed", "slurm_launch", Blame::slurm, false},
});

}  // namespace

std::span<const KnownLine> known_lines() { return kKnownLines; }

const KnownLine* known_line(std::string_view line) {
  const auto found =
      std::ranges::find_if(kKnownLines, [&](const KnownLine& known) { return line.find(known.text) != line.npos; });
  return found == kKnownLines.end() ? nullptr : &*found;
}

std::optional<TaskExit> task_exit(std::string_view line) {
  constexpr std::string_view kStart = "srun: error: ", kTask = ": task", kCode = "Exited with exit code ";
  if (!line.starts_with(kStart)) return std::nullopt;
  line.remove_prefix(kStart.size());
  const std::size_t task = line.find(kTask);
  if (task == line.npos) return std::nullopt;
  TaskExit exit{.node = std::string(line.substr(0, task)), .code = 0};
  if (!slurm::is_host_name(exit.node)) exit.node.clear();  // several nodes at once
  if (const std::size_t code = line.find(kCode); code != line.npos) {
    const std::string_view number = line.substr(code + kCode.size());
    if (std::from_chars(number.data(), number.data() + number.size(), exit.code).ec != std::errc()) return std::nullopt;
    return exit;
  }
  // As strsignal() names them; "Terminated" and "Killed" may be srun's own doing.
  for (const auto& [name, signal] :
       {std::pair{": Segmentation fault", 11}, std::pair{": Aborted", 6}, std::pair{": Bus error", 7},
        std::pair{": Illegal instruction", 4}, std::pair{": Floating point exception", 8},
        std::pair{": Out Of Memory", 9}, std::pair{": Killed", 9}}) {
    if (line.find(name) == line.npos) continue;
    exit.code = 128 + signal;
    return exit;
  }
  return std::nullopt;
}

int take_label(std::string_view& line) {
  std::string_view rest = line.substr(std::min(line.find_first_not_of(' '), line.size()));
  int task = -1;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), task);
  if (error != std::errc() || task < 0) return -1;
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  if (!rest.starts_with(": ")) return -1;
  line = rest.substr(2);
  return task;
}

}  // namespace ms::driver
