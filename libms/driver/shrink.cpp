#include "driver/shrink.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/subprocess.h"
#include "base/text.h"

namespace ms::driver {
namespace {

constexpr double kCheck_s = 30;

SubprocessResult check_with(std::vector<std::string> command, const std::vector<std::string>& more) {
  command[1] = "check";
  std::erase(command, "--fresh");
  command.insert(command.end(), more.begin(), more.end());
  return run_subprocess(command, {.deadline_s = kCheck_s});
}

}  // namespace

std::optional<RunSize> run_size(std::string_view resolved) {
  int dp = 0, pp = 0, tp = 0;
  bool in_mesh = false;
  for (const std::string& line : split(resolved, '\n')) {
    if (line.starts_with('[')) in_mesh = line == "[mesh]";
    for (const auto& [key, size] : {std::pair{"dp = ", &dp}, std::pair{"pp = ", &pp}, std::pair{"tp = ", &tp}}) {
      if (!in_mesh || !line.starts_with(key)) continue;
      std::from_chars(line.data() + std::string_view(key).size(), line.data() + line.size(), *size);
    }
  }
  if (dp <= 0 || pp <= 0 || tp <= 0) return std::nullopt;
  return RunSize{.dp = dp, .ranks = dp * pp * tp};
}

std::optional<SmallerRun> smaller_run(const RunSize& whole, std::size_t nodes, int tasks_per_node,
                                      const std::function<bool(int dp)>& is_allowed) {
  const auto tasks = static_cast<std::size_t>(tasks_per_node);
  const auto replica = static_cast<std::size_t>(whole.ranks / whole.dp);
  for (; nodes > 0; --nodes) {
    if (nodes * tasks % replica != 0) continue;
    const auto dp = static_cast<int>(nodes * tasks / replica);
    if (dp < whole.dp && is_allowed(dp)) return SmallerRun{.nodes = nodes, .dp = dp};
  }
  return std::nullopt;
}

std::optional<SmallerRun> smaller_run_of(const std::vector<std::string>& command, std::size_t nodes,
                                         int tasks_per_node) {
  const SubprocessResult whole = check_with(command, {"--no-files", "--dump"});
  const std::optional<RunSize> size = whole.ok() ? run_size(whole.out) : std::nullopt;
  if (!size) return std::nullopt;
  return smaller_run(*size, nodes, tasks_per_node, [&](int dp) {
    return check_with(command, {"--no-files", "--set", fmt::format("mesh.dp={}", dp)}).ok();
  });
}

}  // namespace ms::driver
