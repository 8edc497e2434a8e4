#include "driver/shrink.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/json.h"
#include "base/subprocess.h"
#include "slurm/elastic.h"

namespace ms::driver {
namespace {

constexpr double kCheck_s = 30;
constexpr double kSpeeds_s = 10;  // no run waits longer to learn how fast it would be

// Returns what "ms-train check" of the run prints; empty: it refuses, or does not answer.
std::string check_of(const std::vector<std::string>& command, std::vector<std::string> options, double deadline_s) {
  std::vector<std::string> check = command;
  check[1] = "check";
  std::erase(check, "--fresh");
  check.insert(check.end(), {"--no-files", "--json"});
  check.insert(check.end(), options.begin(), options.end());
  const SubprocessResult said = run_subprocess(check, {.deadline_s = deadline_s});
  return said.ok() ? said.out : std::string();
}

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
    if (said.contains("speed_up")) {
      for (const Json& size : said.at("speed_up")) sizes.speeds[size.get<int>("dp")] = size.get<double>("tokens_per_s");
    }
    if (sizes.replica < 1 || sizes.allowed.empty()) return std::nullopt;
    return sizes;
  } catch (const JsonError&) { return std::nullopt; }
}

std::optional<RunSizes> ask_run_sizes(const std::vector<std::string>& command) {
  return read_run_sizes(check_of(command, {}, kCheck_s));
}

std::map<int, double> ask_run_speeds(const std::vector<std::string>& command) {
  return read_run_sizes(check_of(command, {"--speeds"}, kSpeeds_s)).value_or(RunSizes{}).speeds;
}

std::string speeds_text(const RunSizes& sizes, const std::map<int, double>& speeds, std::size_t spares,
                        std::size_t most, int tasks_per_node) {
  std::vector<std::string> points;
  for (std::size_t nodes = spares + 1; nodes <= most; ++nodes) {
    const auto fit = fit_on(sizes, nodes - spares, tasks_per_node);
    const auto speed = fit ? speeds.find(fit->dp) : speeds.end();
    if (speed != speeds.end() && speed->second > 0) points.push_back(fmt::format("{}:{:.4g}", nodes, speed->second));
  }
  if (points.empty()) return "";
  // Many are thinned out evenly, with the first and the last: what lies between is nearly on their line.
  std::vector<std::string> kept;
  const std::size_t count = std::min(points.size(), slurm::kMostSpeeds);
  for (std::size_t i = 0; i < count; ++i)
    kept.push_back(points[count == 1 ? 0 : i * (points.size() - 1) / (count - 1)]);
  return fmt::format("{}{}", slurm::kSpeedsComment, fmt::join(kept, ","));
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
