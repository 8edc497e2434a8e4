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
// srun and the command, over these nodes. The step needs nothing of the allocation for itself alone, so that it need
// not wait until Slurm has cleaned up after the one before it. It does not end with its first bad task: srun would kill
// the step so soon that the task's last words are lost in more than half of the cases.
std::vector<std::string> srun_command(const LaunchSpec& spec, const std::vector<std::string>& nodes);
// Whether the tasks are to be ended after a bad one: no option of the user's says what srun does then.
bool ends_with_bad_task(const LaunchSpec& spec);
// Whether tasks lie in blocks, in the order of the nodes: no option of the user's says otherwise. `distribution`: of
// the environment (SLURM_DISTRIBUTION), may be null.
bool has_blocks_of_tasks(const LaunchSpec& spec, const char* distribution);
// The first number of "2(x4)" or "3,2(x2)": tasks per node as Slurm says it. 1 where it says nothing.
int tasks_per_node(const char* tasks_per_node, const char* ntasks_per_node);

}  // namespace ms::driver
