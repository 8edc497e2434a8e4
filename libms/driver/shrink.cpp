#include "driver/shrink.h"

#include <algorithm>

#include "base/json.h"
#include "base/subprocess.h"

namespace ms::driver {
namespace {

constexpr double kCheck_s = 30;

std::optional<RunFit> fit_on(const RunSizes& sizes, std::size_t nodes, int tasks_per_node) {
  const std::size_t ranks = nodes * static_cast<std::size_t>(tasks_per_node);
  const auto replica = static_cast<std::size_t>(sizes.replica);
  if (nodes == 0 || ranks % replica != 0) return std::nullopt;
  const auto dp = static_cast<int>(ranks / replica);
  if (std::ranges::find(sizes.allowed, dp) == sizes.allowed.end()) return std::nullopt;
  return RunFit{.nodes = nodes, .dp = dp};
}

}  // namespace

std::optional<RunSizes> read_run_sizes(std::string_view json) {
  try {
    const Json said = Json::parse(json, {.max_depth = 4});
    RunSizes sizes;
    said.get_to("auto", sizes.is_auto);
    said.get_to("dp", sizes.dp);
    said.get_to("replica_ranks", sizes.replica);
    said.get_to("allowed_dp", sizes.allowed);
    if (sizes.replica < 1 || sizes.allowed.empty()) return std::nullopt;
    return sizes;
  } catch (const JsonError&) { return std::nullopt; }
}

std::optional<RunSizes> ask_run_sizes(const std::vector<std::string>& command) {
  std::vector<std::string> check = command;
  check[1] = "check";
  std::erase(check, "--fresh");
  check.insert(check.end(), {"--no-files", "--json"});
  const SubprocessResult said = run_subprocess(check, {.deadline_s = kCheck_s});
  return said.ok() ? read_run_sizes(said.out) : std::nullopt;
}

std::optional<RunFit> largest_fit(const RunSizes& sizes, std::size_t nodes, int tasks_per_node) {
  for (; nodes > 0; --nodes) {
    if (const auto fit = fit_on(sizes, nodes, tasks_per_node)) return fit;
  }
  return std::nullopt;
}

std::optional<RunFit> smallest_fit(const RunSizes& sizes, std::size_t nodes, int tasks_per_node) {
  for (std::size_t fewer = 1; fewer <= nodes; ++fewer) {
    if (const auto fit = fit_on(sizes, fewer, tasks_per_node)) return fit;
  }
  return std::nullopt;
}

}  // namespace ms::driver
