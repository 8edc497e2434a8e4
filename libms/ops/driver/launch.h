// The command lines by which the driver starts things on nodes of its own allocation. Pure.
#pragma once

#include <string>
#include <vector>

namespace ms::driver {

struct LaunchSpec {
  std::vector<std::string> command;
  int tasks_per_node = 1;
  std::vector<std::string> srun_options;  // of the user
};

bool is_ms_train(const std::vector<std::string>& command);
// srun and the command, over these nodes. A step that ends with its first bad task, and needs nothing of the allocation
// for itself alone, so that it need not wait until Slurm has cleaned up after the one before it.
std::vector<std::string> srun_command(const LaunchSpec& spec, const std::vector<std::string>& nodes);
// The first number of "2(x4)" or "3,2(x2)": tasks per node as Slurm says it. 1 where it says nothing.
int tasks_per_node(const char* tasks_per_node, const char* ntasks_per_node);

}  // namespace ms::driver
