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
     "a kernel that is loaded when it is first launched waits for all that runs, messages included, whose peers may "
     "wait for this rank"},
    {"CUDA_DEVICE_MAX_CONNECTIONS", "32", always,
     "streams that share a queue of the hardware wait for each other: one for every stream of a rank"},
    {"NCCL_RUNTIME_CONNECT", "0", always,
     "groups connect when they are opened, in one order, rather than in the middle of a step"},
    {"NCCL_NVLS_ENABLE", "0", without_switches,
     "with run.deterministic, for switches that add up do so in an order of their own; with run.nccl_register, for "
     "every "
     "operation of theirs would wait for all hosts of the node"},
};

}  // namespace

void set_gpu_environment(const RunConfig& run) {
  for (const Variable& variable : kVariables)
    if (variable.wanted(run)) setenv(variable.name, variable.value, 0);
}

std::string gpu_environment_manual() {
  std::string text = "Processes with GPUs set, where they are not set: ";
  for (const Variable& variable : kVariables) {
    text += fmt::format("{}={} ({}){}", variable.name, variable.value, variable.why,
                        &variable == std::end(kVariables) - 1 ? ". " : ", ");
  }
  return text +
         "NCCL_MAX_CTAS rules over how much of a GPU a group's messages may take: 16 blocks in tp and dp groups, 8 "
         "between two ranks, else 4, at most 88 in all, so that all fit, and less where a GPU has fewer than 100 "
         "multiprocessors. All others are NCCL's own; NCCL_DEBUG=WARN "
         "says more where it fails.";
}

}  // namespace ms::train
