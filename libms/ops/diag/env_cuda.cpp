// env.cuda: variables of the job's environment that make GPUs or NCCL slow, or change results.
#include <cstdlib>

#include "base/text.h"
#include "health/checks/check.h"

namespace ms::diag {
namespace {

struct Harmful {
  const char* name;
  const char* value;  // empty: any
  std::string_view what;
};
constexpr Harmful kHarmful[] = {
    {"CUDA_LAUNCH_BLOCKING", "1", "every kernel is waited for"},
    {"CUDA_DEVICE_WAITS_ON_EXCEPTION", "1", "a failing kernel waits for a debugger for ever"},
    {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1", "a failing kernel writes all memory of the GPU to disk"},
    {"CUDA_ENABLE_LIGHTWEIGHT_COREDUMP", "1", "a failing kernel writes a core file of the GPU"},
    {"CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "1", "kernels are built and run for debugging"},
    {"CUDA_DEBUGGER_SOFTWARE_PREEMPTION", "1", "kernels are preempted for a debugger"},
    {"CUDA_FORCE_PTX_JIT", "1", "every kernel is compiled anew at the start"},
    {"CUDA_CACHE_DISABLE", "1", "kernels are compiled anew in every process"},
    {"NVIDIA_TF32_OVERRIDE", "", "libraries compute fp32 otherwise than the program says"},
    {"CUBLAS_EMULATE_SINGLE_PRECISION", "1", "cuBLAS computes fp32 in another way"},
    {"NCCL_DEBUG", "TRACE", "NCCL writes a line for every call"},
    {"NCCL_P2P_DISABLE", "1", "GPUs of a node do not use NVLink"},
    {"NCCL_SHM_DISABLE", "1", "processes of a node do not use shared memory"},
    {"NCCL_IB_DISABLE", "1", "NCCL does not use RDMA"},
    {"NCCL_PROTO", "LL", "large messages are slow"},
};

health::Result check_environment(health::Evidence&) {
  std::vector<Finding> findings;
  for (const Harmful& harmful : kHarmful) {
    const char* value = std::getenv(harmful.name);
    if (value == nullptr || *value == '\0' || (*harmful.value != '\0' && std::string_view(value) != harmful.value))
      continue;
    findings.push_back(
        about(harmful.name, Severity::warning, fmt::format("is {}: {}", plain_text(value, 40), harmful.what)));
  }
  return health::judged(std::move(findings), fmt::format("{} variables", std::size(kHarmful)));
}

}  // namespace

extern constinit const health::Check kEnvCuda = {
    .code = "env.cuda",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "variables that make CUDA or NCCL slow, or change results",
    .deadline_s = 5,
    .blame = Blame::user,
    .user_can_cause = true,
    .on_hang = std::nullopt,
    .explain =
        "Looks for variables that are meant for debugging or disable optimizations of CUDA and NCCL: "
        "CUDA_LAUNCH_BLOCKING=1, NCCL_P2P_DISABLE=1, NVIDIA_TF32_OVERRIDE and others. It runs at level 2, because only "
        "the job step sees the environment of the job.",
    .remedy =
        "Remove the variable from the job script, ~/.bashrc, the container or /etc/nccl.conf, if it is not needed.",
    .run = check_environment};

}  // namespace ms::diag
