#include "train/run/gpu_environment.h"

#include <fmt/format.h>

#include <cstdlib>
#include <iterator>

namespace ms::train {
namespace {

struct Variable {
  const char *name, *value;
  bool (*wanted)(const RunConfig&);
  const char* why;
};

bool always(const RunConfig&) { return true; }
bool without_switches(const RunConfig& run) { return run.deterministic || run.nccl_register; }

constexpr Variable kVariables[] = {
    {"CUDA_MODULE_LOADING", "EAGER", always,
     "lazy loading of a kernel waits for all running kernels, collectives included, and their peers may wait for this "
     "rank"},
    {"CUDA_DEVICE_MAX_CONNECTIONS", "32", always,
     "a hardware queue for every stream of a rank: streams that share one wait for each other"},
    {"NCCL_RUNTIME_CONNECT", "0", always,
     "communicators connect when they are created, in one order, and not in the middle of a step"},
    {"NCCL_NVLS_ENABLE", "0", without_switches,
     "with run.deterministic, because network switches determine the order of sums; with run.nccl_register, because "
     "every NVLS operation would wait for all hosts of the node"},
};

}  // namespace

void set_gpu_environment(const RunConfig& run) {
  for (const Variable& variable : kVariables)
    if (variable.wanted(run)) setenv(variable.name, variable.value, 0);
}

std::string gpu_environment_manual() {
  std::string text = "Processes with GPUs set these variables if they are not set: ";
  for (const Variable& variable : kVariables) {
    text += fmt::format("{}={} ({}){}", variable.name, variable.value, variable.why,
                        &variable == std::end(kVariables) - 1 ? ". " : ", ");
  }
  return text +
         "NCCL_MAX_CTAS limits the thread blocks of each communicator. By default tp and dp groups use 16, pairs of "
         "ranks 8 and others 4, at most 88 in all; fewer on GPUs with fewer than 100 multiprocessors. All other "
         "variables are NCCL's own; NCCL_DEBUG=WARN prints why NCCL failed.";
}

}  // namespace ms::train
