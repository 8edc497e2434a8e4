#include "slurm/known_lines.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "slurm/hostlist.h"

namespace ms::slurm {
namespace {

constexpr std::string_view kSlurm = "Slurm";  // its programs put their names before what they say

// The first match wins: what tells more stands before what tells less.
constexpr std::array kKnownLines = std::to_array<KnownLine>({
    // The device says that it is broken.
    {"uncorrectable ECC error encountered", "gpu_ecc", Blame::gpu, Says::proof, "CUDA"},
    {"CUDA_ERROR_ECC_UNCORRECTABLE", "gpu_ecc", Blame::gpu, Says::proof, "CUDA"},
    {"GPU has fallen off the bus", "gpu_lost", Blame::gpu, Says::proof, "the NVIDIA driver"},
    {"GPU is lost", "gpu_lost", Blame::gpu, Says::proof, "NVML"},
    // Another host may have said so, whose words this one repeats.
    {"uncorrectable ECC error encountered", "gpu_ecc", Blame::gpu, Says::hint, "CUDA"},
    {"CUDA_ERROR_ECC_UNCORRECTABLE", "gpu_ecc", Blame::gpu, Says::hint, "CUDA"},
    {"GPU has fallen off the bus", "gpu_lost", Blame::gpu, Says::hint, "the NVIDIA driver"},
    {"GPU is lost", "gpu_lost", Blame::gpu, Says::hint, "NVML"},
    {"reason :ECC", "gpu_ecc", Blame::gpu, Says::hint, "ROCm"},
    {"GPU requires reset", "gpu_reset", Blame::gpu, Says::hint, "NVML"},
    {"(cudaErrorContained)", "gpu_contained", Blame::gpu, Says::hint, "CUDA"},
    {"DEVICE_LOST)", "gpu_lost", Blame::gpu, Says::hint, "SYCL"},
    {"HW Exception by GPU", "gpu_hardware", Blame::bug, Says::hint, "ROCm"},
    {"[Device reset]", "gpu_reset", Blame::gpu, Says::hint, "SynapseAI"},
    {"[Device not found]", "gpu_missing", Blame::user, Says::hint, "SynapseAI"},
    // A program on the other end of the link, or one that overruns its stack, can cause these.
    {"uncorrectable NVLink error", "gpu_nvlink", Blame::fabric, Says::hint, "CUDA"},
    {"CUDA_ERROR_NVLINK_UNCORRECTABLE", "gpu_nvlink", Blame::fabric, Says::hint, "CUDA"},
    {"Invalid access of peer GPU memory over nvlink", "gpu_nvlink", Blame::fabric, Says::hint, "CUDA"},
    {"hardware stack error", "gpu_hardware", Blame::bug, Says::hint, "CUDA"},
    {"CUDA_ERROR_HARDWARE_STACK_ERROR", "gpu_hardware", Blame::bug, Says::hint, "CUDA"},
    // The job script, the container or the environment; or one node that is set up in another way than the others.
    {"no CUDA-capable device is detected", "gpu_missing", Blame::user, Says::hint, "CUDA"},
    {"CUDA-capable device(s) is/are busy", "gpu_busy", Blame::node, Says::hint, "CUDA"},
    {"CUDA driver initialization failed", "gpu_missing", Blame::user, Says::hint, "PyTorch"},
    {"No CUDA GPUs are available", "gpu_missing", Blame::user, Says::hint, "PyTorch"},
    {"CUDA driver version is insufficient", "gpu_driver", Blame::user, Says::hint, "CUDA"},
    {"The NVIDIA driver on your system is too old", "gpu_driver", Blame::user, Says::hint, "PyTorch"},
    {"Found no NVIDIA driver on your system", "gpu_driver", Blame::user, Says::hint, "PyTorch"},
    {"system not yet initialized", "gpu_fabric_manager", Blame::node, Says::hint, "CUDA"},
    {"no kernel image is available", "gpu_architecture", Blame::user, Says::hint, "CUDA"},
    {"invalid device ordinal", "gpu_count", Blame::user, Says::hint, "CUDA"},
    {"ModuleNotFoundError:", "python_module", Blame::user, Says::hint, "Python"},
    {"cannot open shared object file", "missing_library", Blame::user, Says::hint, "the dynamic linker"},
    {"FileNotFoundError:", "missing_file", Blame::user, Says::hint, "Python"},
    {"can't open file", "missing_file", Blame::user, Says::hint, "Python"},
    {"execve():", "missing_file", Blame::user, Says::hint, kSlurm},
    {"version `GLIBC", "missing_library", Blame::user, Says::hint, "the dynamic linker"},
    {"no socket interface found", "network_interface", Blame::user, Says::hint, "NCCL"},
    {"IMEX channel configuration", "gpu_imex", Blame::node, Says::hint, "NCCL"},
    {"Call to ibv_reg_mr", "ib_memory", Blame::node, Says::hint, "NCCL"},
    {"cgroup.procs", "cgroup", Blame::node, Says::hint, kSlurm},
    {"FATAL:   could not open image", "container", Blame::user, Says::hint, "Apptainer"},
    // pyxis puts its own name before what enroot says.
    {"error code: 429", "web_service", Blame::fabric, Says::trouble, "enroot"},
    {"429 Too Many Requests", "web_service", Blame::fabric, Says::trouble, "a registry"},
    {"Could not resolve host", "name_service", Blame::fabric, Says::trouble, "curl"},
    {"curl: (28)", "web_service", Blame::fabric, Says::trouble, "curl"},
    {"error: pyxis:", "container", Blame::user, Says::hint, "pyxis"},
    {"SyntaxError:", "python_syntax", Blame::user, Says::mistake, "Python"},
    {"already completing or completed", kJobEnds, Blame::slurm, Says::mistake, kSlurm},
    // Memory that the program asks for.
    {"out of shared memory", "shared_memory", Blame::user, Says::error, "PyTorch"},
    {"insufficient shared memory", "shared_memory", Blame::user, Says::error, "PyTorch"},
    {"unable to open shared memory object", "shared_memory", Blame::user, Says::error, "PyTorch"},
    {"unable to write to file </torch_", "shared_memory", Blame::user, Says::error, "PyTorch"},
    {"to extend /dev/shm/nccl-", "shared_memory", Blame::user, Says::error, "NCCL"},
    {"creating shared memory segment", "shared_memory", Blame::user, Says::error, "NCCL"},
    {"No space left on device: '/dev/shm", "shared_memory", Blame::user, Says::error, "Python"},
    // Another process has the memory: one that was left behind, or another rank of the program.
    {"is free. Process ", "gpu_shared", Blame::node, Says::hint, "PyTorch"},
    {"CUDA out of memory", "gpu_memory", Blame::user, Says::error, "PyTorch"},
    {"CUDA error: out of memory", "gpu_memory", Blame::user, Says::error, "PyTorch"},
    {"torch.OutOfMemoryError", "gpu_memory", Blame::user, Says::error, "PyTorch"},
    {"torch.cuda.OutOfMemoryError", "gpu_memory", Blame::user, Says::error, "PyTorch"},
    {"CUDA_ERROR_OUT_OF_MEMORY", "gpu_memory", Blame::user, Says::error, "CUDA"},
    {"RESOURCE_EXHAUSTED: Out of memory", "gpu_memory", Blame::user, Says::error, "JAX"},
    {"Out of GPU memory", "gpu_memory", Blame::user, Says::error, "CUDA.jl"},
    {"OUT_OF_DEVICE_MEMORY)", "gpu_memory", Blame::user, Says::error, "SYCL"},
    {"'out of memory'", "gpu_memory", Blame::user, Says::error, "NCCL"},
    {"Failed to CUDA calloc", "gpu_memory", Blame::user, Says::error, "NCCL"},
    {"oom-kill event", "job_memory", Blame::user, Says::error, kSlurm},
    {"oom_kill event", "job_memory", Blame::user, Says::error, kSlurm},
    {": Out Of Memory", "job_memory", Blame::user, Says::error, kSlurm},
    {"MemoryError", "host_memory", Blame::user, Says::error, "Python"},
    {"std::bad_alloc", "host_memory", Blame::user, Says::error, "C++"},
    // The program's own errors, on whatever node.
    {"an illegal memory access was encountered", "gpu_illegal_address", Blame::bug, Says::error, "CUDA"},
    {"misaligned address", "gpu_illegal_address", Blame::bug, Says::error, "CUDA"},
    {"device-side assert triggered", "gpu_assert", Blame::user, Says::error, "CUDA"},
    // May be the hardware or not: looked at before a node is accused.
    {"unspecified launch failure", "gpu_launch", Blame::bug, Says::hint, "CUDA"},
    {"CUDA error: unknown error", "gpu_unknown", Blame::gpu, Says::hint, "CUDA"},
    {"CUDA_ERROR_UNKNOWN", "gpu_unknown", Blame::gpu, Says::hint, "CUDA"},
    {"CUBLAS_STATUS_EXECUTION_FAILED", "gpu_launch", Blame::bug, Says::hint, "cuBLAS"},
    {"CUDNN_STATUS_EXECUTION_FAILED", "gpu_launch", Blame::bug, Says::hint, "cuDNN"},
    {"Unable to determine the device handle", "gpu_lost", Blame::gpu, Says::hint, "nvidia-smi"},
    {"Out of memory: Killed process", "host_memory", Blame::node, Says::hint, "Linux"},
    {"Cuda failure", "nccl_cuda", Blame::gpu, Says::hint, "NCCL"},
    {"unhandled cuda error", "nccl_cuda", Blame::gpu, Says::hint, "NCCL"},
    {"ncclUnhandledCudaError", "nccl_cuda", Blame::gpu, Says::hint, "NCCL"},
    // Before the words of file systems, which these repeat.
    {"OFI poll failed", "ofi", Blame::fabric, Says::hint, "MPICH"},
    // The file systems; where one node alone says so, its mount may be at fault.
    {"Input/output error", "storage_io", Blame::storage, Says::hint, "Linux"},
    {"Remote I/O error", "storage_io", Blame::storage, Says::hint, "Linux"},
    {"Structure needs cleaning", "storage_damaged", Blame::storage, Says::hint, "Linux"},
    {"Stale file handle", "storage_stale", Blame::storage, Says::hint, "Linux"},
    {"Read-only file system", "storage_read_only", Blame::storage, Says::hint, "Linux"},
    {"Transport endpoint is not connected", "storage_lost", Blame::storage, Says::hint, "Linux"},
    {"Cannot send after transport endpoint shutdown", "storage_lost", Blame::storage, Says::hint, "Lustre"},
    {"No space left on device", "storage_full", Blame::storage, Says::trouble, "Linux"},
    {"Disk quota exceeded", "storage_quota", Blame::storage, Says::trouble, "Linux"},
    // The fabric, or the peer behind it.
    {"NET/IB : Got completion", "ib_completion", Blame::fabric, Says::trouble, "NCCL before 2.27"},
    {"NET/IB: Got completion", "ib_completion", Blame::fabric, Says::trouble, "NCCL"},
    {"NET/IBP:Got completion", "ib_completion", Blame::fabric, Says::trouble, "NCCL with a plugin"},
    {"IBV_WC_RETRY_EXC_ERR", "ib_retry", Blame::fabric, Says::trouble, "libibverbs"},
    {"Call to ibv_modify_qp failed", "ib_qp", Blame::fabric, Says::trouble, "NCCL"},
    {"Network is unreachable", "network", Blame::fabric, Says::trouble, "Linux"},
    {"Host is down", "network", Blame::fabric, Says::trouble, "Linux"},
    {"Communication error on send", "network", Blame::fabric, Says::trouble, "Linux"},
    {"No route to host", "network", Blame::fabric, Says::trouble, "Linux"},
    {"Temporary failure in name resolution", "name_service", Blame::fabric, Says::trouble, "glibc"},
    {"Name or service not known", "name_service", Blame::fabric, Says::trouble, "glibc"},
    {"404 Client Error", "web_address", Blame::user, Says::error, "Python"},
    {"HTTP Error 404", "web_address", Blame::user, Says::error, "Python"},
    {"HTTPSConnectionPool(", "web_service", Blame::fabric, Says::trouble, "Python"},
    {"ServiceUnavailable: 503", "web_service", Blame::fabric, Says::trouble, "Google Cloud"},
    {"SSLError:", "web_service", Blame::fabric, Says::trouble, "Python"},
    {"HTTPError:", "web_service", Blame::fabric, Says::trouble, "Python"},
    {"We couldn't connect to 'https", "web_service", Blame::fabric, Says::trouble, "Hugging Face"},
    {"An error occurred (503)", "web_service", Blame::fabric, Says::trouble, "boto"},
    {"(SlowDown)", "web_service", Blame::fabric, Says::trouble, "S3"},
    {"LocalEntryNotFoundError:", "web_service", Blame::fabric, Says::trouble, "Hugging Face"},
    {"wandb.errors.CommError:", "web_service", Blame::fabric, Says::trouble, "Weights & Biases"},
    {"wandb.errors.errors.CommError:", "web_service", Blame::fabric, Says::trouble, "Weights & Biases"},
    {"PMIX ERROR", "pmix", Blame::slurm, Says::trouble, "PMIx"},
    {"Requested node configuration is not available", "slurm_nodes", Blame::slurm, Says::trouble, kSlurm},
    {"Node failure on", "slurm_node_failure", Blame::slurm, Says::trouble, kSlurm},
    // "*** STEP 7.0 ON node1 CANCELLED AT ...": the node is the step's first, whatever happened where.
    {"DUE TO TIME LIMIT", "time_limit", Blame::slurm, Says::trouble, kSlurm},
    {"DUE TO PREEMPTION", "preempted", Blame::slurm, Says::trouble, kSlurm},
    {"DUE TO JOB REQUEUE", "requeued", Blame::slurm, Says::trouble, kSlurm},
    {"DUE TO NODE FAILURE", "slurm_node_failure", Blame::slurm, Says::trouble, kSlurm},
    {"Unable to create step for job", "slurm_step", Blame::slurm, Says::trouble, kSlurm},
    {"Unable to contact slurm controller", "slurm_controller", Blame::slurm, Says::trouble, kSlurm},
    {"launch failed", kLaunchFailed, Blame::slurm, Says::trouble, kSlurm},
    {"Task launch for StepId", kLaunchFailed, Blame::slurm, Says::trouble, kSlurm},
    // The words of ranks that still run when another one ended or hangs.
    {"Watchdog caught collective operation timeout", kCollectiveTimeout, Blame::peer, Says::effect, "PyTorch"},
    {"Some NCCL operations have failed or timed out", kCollectiveTimeout, Blame::peer, Says::effect, "PyTorch"},
    {"in store based barrier", "peer_timeout", Blame::peer, Says::effect, "PyTorch"},
    {"Socket Timeout", "peer_timeout", Blame::peer, Says::effect, "PyTorch"},
    {"Timed out waiting", "peer_timeout", Blame::peer, Says::effect, "Gloo"},
    {"mapping of buffer object failed", "peer_lost", Blame::peer, Says::effect, "CUDA"},
    {"connectFullMesh failed", "peer_lost", Blame::peer, Says::effect, "Gloo"},
    {"DeepEP error: timeout", "peer_timeout", Blame::peer, Says::effect, "DeepEP"},
    {"DeepEP error: CPU recv timeout", "peer_timeout", Blame::peer, Says::effect, "DeepEP"},
    {"ncclRemoteError", "nccl_peer", Blame::peer, Says::effect, "NCCL"},
    {"ncclSystemError", "nccl_system", Blame::peer, Says::effect, "NCCL"},
    {"unhandled system error", "nccl_system", Blame::peer, Says::effect, "NCCL"},
    {"NCCL communicator was aborted", "nccl_peer", Blame::peer, Says::effect, "PyTorch"},
    {"Connection reset by peer", "peer_closed", Blame::peer, Says::effect, "Linux"},
    {"Connection closed by peer", "peer_closed", Blame::peer, Says::effect, "Gloo"},
    {"Connection closed by remote peer", "peer_closed", Blame::peer, Says::effect, "NCCL"},
    {"Connection refused", "peer_closed", Blame::peer, Says::effect, "Linux"},
    {"Connection timed out", "peer_closed", Blame::peer, Says::effect, "Linux"},
    {"Broken pipe", "peer_closed", Blame::peer, Says::effect, "Linux"},
    {"ConnectionError:", "peer_closed", Blame::peer, Says::effect, "Python"},
    {"RendezvousClosedError", "peer_lost", Blame::peer, Says::effect, "torchrun"},
    {"RendezvousConnectionError", "peer_lost", Blame::peer, Says::effect, "torchrun"},
    {"RendezvousTimeoutError", "peer_timeout", Blame::peer, Says::effect, "torchrun"},
    {"TimeoutError", "peer_timeout", Blame::peer, Says::effect, "Python"},
    {"DistBackendError:", "peer_lost", Blame::peer, Says::effect, "PyTorch"},
    {"DistNetworkError:", "peer_lost", Blame::peer, Says::effect, "PyTorch"},
    {"DistStoreError:", "peer_lost", Blame::peer, Says::effect, "PyTorch"},
    {"ChildFailedError:", "child_failed", Blame::peer, Says::effect, "torchrun"},
    {"CalledProcessError:", kChildFailed, Blame::peer, Says::effect, "Accelerate"},
    {"Engine core initialization failed", kChildFailed, Blame::peer, Says::effect, "vLLM"},
    {"SignalException:", "child_failed", Blame::peer, Says::effect, "torchrun"},
    {"KeyboardInterrupt", "child_failed", Blame::peer, Says::effect, "Python"},
    {"comm.peer_lost", "peer_lost", Blame::peer, Says::effect, "ms"},
    {"timeout caused pair closure", "peer_timeout", Blame::peer, Says::effect, "Gloo"},
    {"monitoredBarrier", "peer_timeout", Blame::peer, Says::effect, "PyTorch"},
    {"Horovod has been shut down", "peer_lost", Blame::peer, Says::effect, "Horovod"},
    {"HorovodInternalError", "peer_lost", Blame::peer, Says::effect, "Horovod"},
    {"ActorDiedError", "peer_lost", Blame::peer, Says::effect, "Ray"},
    {"WorkerCrashedError", "peer_lost", Blame::peer, Says::effect, "Ray"},
    {"NodeDiedError", "peer_lost", Blame::peer, Says::effect, "Ray"},
    {"EngineDeadError", "peer_lost", Blame::peer, Says::effect, "vLLM"},
    {"UnavailableError:", "peer_lost", Blame::peer, Says::effect, "TensorFlow"},
    {"UNAVAILABLE: ", "peer_lost", Blame::peer, Says::effect, "JAX"},
    {"ABORTED: ", "peer_lost", Blame::peer, Says::effect, "JAX"},
    {"DEADLINE_EXCEEDED: ", "peer_timeout", Blame::peer, Says::effect, "JAX"},
    {"coordination service", "peer_lost", Blame::peer, Says::effect, "JAX"},
    {"MPI_ERR_PROC_FAILED", "peer_lost", Blame::peer, Says::effect, "MPI"},
    {"MPI_ABORT was invoked", "mpi_abort", Blame::peer, Says::effect, "Open MPI"},
    // The program's words for an error that has no other row.
    {"what():  ", kException, Blame::bug, Says::exception, "C++"},
    {"Assertion `", kException, Blame::bug, Says::exception, "glibc"},
    {"Fatal Python error:", kException, Blame::bug, Says::exception, "Python"},
    {"panicked at", kException, Blame::bug, Says::exception, "Rust"},
    {"Check failed: ", kException, Blame::bug, Says::exception, "glog"},
    {"(SIGSEGV)", kException, Blame::bug, Says::exception, "torchrun"},
    {"(SIGBUS)", kException, Blame::bug, Says::exception, "torchrun"},
    {"(SIGABRT)", kException, Blame::bug, Says::exception, "torchrun"},
    {"OutOfResources: ", kException, Blame::bug, Says::exception, "Triton"},
    {"pure virtual method called", kException, Blame::bug, Says::exception, "C++"},
    {"Fortran runtime error: ", kException, Blame::bug, Says::exception, "gfortran"},
    {"ERROR STOP ", kException, Blame::bug, Says::exception, "gfortran"},
    {"PETSC ERROR: Caught signal", kException, Blame::bug, Says::exception, "PETSc"},
    {"Accelerator Fatal Error: ", kException, Blame::bug, Says::exception, "OpenACC"},
    {"Could not override '", kException, Blame::bug, Says::exception, "Hydra"},
    {"MPI_ERRORS_ARE_FATAL", kException, Blame::bug, Says::exception, "Open MPI"},
    {"ERROR: LoadError: ", kException, Blame::bug, Says::exception, "Julia"},
    {"exits with return code = -11", kException, Blame::bug, Says::exception, "DeepSpeed"},
    {"Memory access fault by GPU", kException, Blame::bug, Says::exception, "ROCm"},
    {"Fatal error in PMPI_", kException, Blame::bug, Says::exception, "MPICH"},
    {"Duplicate GPU detected", kException, Blame::bug, Says::exception, "NCCL"},
    {"forrtl: severe", kException, Blame::bug, Says::exception, "Intel Fortran"},
    {": unbound variable", kException, Blame::bug, Says::exception, "shells"},
    {"double free or corruption", kException, Blame::bug, Says::exception, "glibc"},
    {"free(): invalid", kException, Blame::bug, Says::exception, "glibc"},
    {"stack smashing detected", kException, Blame::bug, Says::exception, "glibc"},
    {"Exception: ", kException, Blame::bug, Says::exception, "Python, for any class of exceptions"},
});

const KnownLine* proof_of(const KnownLine& known) {
  const auto found = std::ranges::find_if(
      kKnownLines, [&](const KnownLine& row) { return row.says == Says::proof && row.text == known.text; });
  return found == kKnownLines.end() ? nullptr : found;
}
bool repeats_proof(const KnownLine& known) { return known.says == Says::hint && proof_of(known) != nullptr; }

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool is_source(std::string_view line) {
  return line.starts_with("    ") || line.starts_with("  File \"") || line.starts_with("+ ");
}

// "[W1120 12:00:00.123 socket.cpp:697] [c10d] ...", as C++ libraries log, and what others print of what they survive.
bool is_warning(std::string_view line) {
  const bool is_glog = line.starts_with("[W") && line.size() > 2 && !std::isalpha(static_cast<unsigned char>(line[2]));
  constexpr std::array kSurvived = std::to_array<std::string_view>(
      {"WARN", "wandb: ", "sudo: ", "fusermount", "shell-init: ", "job-working-directory: ", "Matplotlib created"});
  return is_glog || std::ranges::any_of(kSurvived, [&](std::string_view start) { return line.starts_with(start); }) ||
         line.find(": warning: ") != line.npos || line.find("UserWarning: ") != line.npos ||
         line.find("gds_ds12_lock") != line.npos;  // PMIx's store, which has another way
}

// Python draws a line beside the exceptions of a group.
void take_group(std::string_view& line) {
  const std::size_t at = line.find_first_not_of(' ');
  if (at == line.npos || line[at] != '|') return;
  line.remove_prefix(std::min(at + 2, line.size()));
}

// A slurmd that may run several times on a host (--enable-multiple-slurmd) names its node: "slurmstepd-node02: ".
bool is_of_slurm(std::string_view line) {
  return line.starts_with("srun: ") || line.starts_with("slurmstepd: ") || line.starts_with("slurmstepd-");
}

// How sure it is that whoever writes the line speaks of itself, from what stands before the row's text: an error's own
// line has nothing but names of an exception and of what raised it there. Lists, patterns and names of files hold the
// same words.
enum class Speaks { of_others, of_somebody, of_itself };
Speaks speaker(std::string_view before) {
  constexpr std::array kSpeakers = std::to_array<std::string_view>(
      {"CUDA error: ", "CUDA driver error: ", "CUDA Error: ", "HIP error: ", "cuda runtime error (39) : ",
       "ERROR: LoadError: ", "error( cudaErrorECCUncorrectable): ", "cudaDeviceSynchronize() ", "returned error 214 (",
       "what():  ", "NVML: ", "Failed: Cuda error '", "CUDA failure: ", "CUDA runtime error: ",
       "cudaErrorECCUncorrectable: ", "results in ", "NVMLError_GpuIsLost: ", "INTERNAL: "});
  if (before.find_first_not_of(' ') == before.npos) return Speaks::of_itself;
  if (before.starts_with("Unable to determine the device handle")) return Speaks::of_itself;
  if (before.find("NCCL WARN ") != before.npos && before.find("uda failure") != before.npos) return Speaks::of_itself;
  std::string_view name = before;
  const auto speaks = [&](std::string_view words) { return name.ends_with(words); };
  for (auto words = std::ranges::find_if(kSpeakers, speaks); words != kSpeakers.end();
       words = std::ranges::find_if(kSpeakers, speaks))
    name.remove_suffix(words->size());
  // Behind a second colon an exception repeats what others said.
  const bool is_exception = name.ends_with(": ") && name.find(": ") == name.size() - 2 &&
                            is_python_exception(name.substr(0, name.size() - 2));
  if (is_exception || name.find_first_not_of(' ') == name.npos) return Speaks::of_itself;
  return name.size() == before.size() ? Speaks::of_others : Speaks::of_somebody;
}

bool matches(const KnownLine& known, std::string_view line, bool is_exception) {
  const std::size_t at = line.find(known.text);
  if (at == line.npos || (!is_exception && known.text.ends_with("Error:"))) return false;
  if (known.source == kSlurm) return is_of_slurm(line);
  if (known.says != Says::proof && !repeats_proof(known)) return true;
  return speaker(line.substr(0, at)) >= (known.says == Says::proof ? Speaks::of_itself : Speaks::of_somebody);
}

}  // namespace

std::span<const KnownLine> known_lines() { return kKnownLines; }

const KnownLine* known_line(std::string_view line) {
  take_worker(line);
  take_group(line);
  if (is_source(line)) return nullptr;
  const bool warns = is_warning(line);
  // A program that logs an exception which it caught puts other words before the name of the class.
  const bool is_exception = is_python_exception(line);
  const auto rows = std::span(kKnownLines).first(kKnownLines.size() - 1);
  const auto found = std::ranges::find_if(rows, [&](const KnownLine& known) {
    return matches(known, line, is_exception) && (!warns || repeats_proof(known));
  });
  if (found != rows.end()) return &*found;
  return is_exception && !warns ? &kKnownLines.back() : nullptr;
}

const KnownLine* any_exception() { return &kKnownLines.back(); }

const KnownLine* repeated(const KnownLine* known) {
  const auto found = std::ranges::find_if(
      kKnownLines, [&](const KnownLine& row) { return row.says == Says::hint && row.text == known->text; });
  return known->says != Says::proof || found == kKnownLines.end() ? known : found;
}

bool is_python_exception(std::string_view line) {
  const std::string_view name =
      line.substr(0, line.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."));
  if (line.size() > name.size() && !line.substr(name.size()).starts_with(": ")) return false;
  return std::ranges::any_of(std::array<std::string_view, 4>{"Error", "Exception", "Interrupt", "Exit"},
                             [&](std::string_view end) { return name.ends_with(end); });
}

std::string without_numbers(std::string_view line) {
  std::string text;
  for (std::size_t at = 0; at < line.size();) {
    const auto end = static_cast<std::size_t>(std::find_if_not(line.begin() + at, line.end(), is_word) - line.begin());
    const std::string_view word = line.substr(at, std::max<std::size_t>(end - at, 1));
    text += std::ranges::any_of(word, [](char c) { return c >= '0' && c <= '9'; }) ? "#" : word;
    at += word.size();
  }
  return text;
}

std::optional<TaskExit> task_exit(std::string_view line) {
  constexpr std::string_view kStart = "srun: error: ", kTask = ": task", kCode = "Exited with exit code ";
  if (!line.starts_with(kStart)) return std::nullopt;
  line.remove_prefix(kStart.size());
  const std::size_t task = line.find(kTask);
  if (task == line.npos || line.substr(0, task).find(' ') != line.npos) return std::nullopt;
  TaskExit exit{.node = std::string(line.substr(0, task)), .code = TaskExit::kUnknown};
  if (!is_host_name(exit.node)) exit.node.clear();  // several nodes at once
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
    break;
  }
  return exit;
}

int take_worker(std::string_view& line) {
  int worker = -1;
  // "(EngineCore_0 pid=4711) ValueError: ...": a process of the same host.
  const std::size_t pid = line.find(" pid="), closed = line.find(") ");
  if (line.starts_with('(') && closed != line.npos && pid < closed &&
      line.substr(0, closed).find_first_not_of("0123456789", pid + 5) == line.npos)
    line.remove_prefix(closed + 2);
  for (const std::string_view start : {"[rank", "[default"}) {
    const std::size_t end = line.find("]:");
    if (!line.starts_with(start) || end == line.npos) continue;
    if (start == "[rank") std::from_chars(line.data() + start.size(), line.data() + end, worker);
    line.remove_prefix(std::min(end + (line.substr(end).starts_with("]: ") ? 3 : 2), line.size()));
  }
  return worker;
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

}  // namespace ms::slurm
