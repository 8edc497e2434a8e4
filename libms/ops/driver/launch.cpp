#include "driver/launch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/number.h"
#include "slurm/hostlist.h"

namespace ms::driver {
namespace {

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

bool is_ms_train(const std::vector<std::string>& command) {
  return command.size() >= 2 && base_name(command[0]) == "ms-train" && command[1] == "run";
}

std::vector<std::string> srun_command(const LaunchSpec& spec, const std::vector<std::string>& nodes) {
  std::vector<std::string> argv{
      "srun",
      "--overlap",
      "--label",
      "--unbuffered",
      "--kill-on-bad-exit=0",
      fmt::format("--nodes={}", nodes.size()),
      fmt::format("--ntasks={}", nodes.size() * static_cast<std::size_t>(spec.tasks_per_node)),
      fmt::format("--ntasks-per-node={}", spec.tasks_per_node),
      "--nodelist=" + slurm::fold_hostlist(nodes)};
  if (is_ms_train(spec.command)) argv.emplace_back("--mpi=pmix");
  argv.insert(argv.end(), spec.srun_options.begin(), spec.srun_options.end());
  argv.insert(argv.end(), spec.command.begin(), spec.command.end());
  return argv;
}

bool ends_with_bad_task(const LaunchSpec& spec) {
  return std::ranges::none_of(spec.srun_options, [](const std::string& option) {
    return option.starts_with("--kill-on-bad-exit") || option.starts_with("-K");
  });
}

bool has_blocks_of_tasks(const LaunchSpec& spec, const char* distribution) {
  if (spec.tasks_per_node == 1) return true;
  if (distribution != nullptr && !std::string_view(distribution).starts_with("block")) return false;
  return std::ranges::none_of(spec.srun_options, [](const std::string& option) {
    return option.starts_with("--distribution") || option.starts_with("-m");
  });
}

int tasks_per_node(const char* tasks_per_node, const char* ntasks_per_node) {
  for (const char* text : {ntasks_per_node, tasks_per_node}) {
    const int number = text == nullptr ? 0 : leading_number<int>(text).value_or(0);
    if (number > 0) return number;
  }
  return 1;
}

}  // namespace ms::driver
