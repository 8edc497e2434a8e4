#include "driver/sizes.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "slurm/elastic.h"

namespace ms::driver {
namespace {

constexpr std::size_t kMostSizes = 64;  // in the job's comment
constexpr const char* kOneSize =
    "the run has one size: mesh.dp is a number and --shrink was not given, or --segment was";

}  // namespace

Sizes::Sizes(const DriverOptions& options, std::set<std::string> given_back)
    : options_(options), given_back_(std::move(given_back)) {}

void Sizes::ask() {
  sizes_ = is_ms_train(options_.launch.command) ? ask_run_sizes(options_.launch.command) : std::nullopt;
}

std::optional<RunFit> Sizes::fit(std::size_t nodes) const {
  return largest_fit(*sizes_, nodes, options_.launch.tasks_per_node);
}

Sizes::Start Sizes::choose(Pool& pool) {
  const std::size_t all = options_.nodes.size() - std::min(options_.spares, options_.nodes.size() - 1);
  const std::size_t most = most_nodes_ == 0 ? all : std::min(all, most_nodes_);
  Start start{.launch = options_.launch, .nodes = {}, .too_few = {}};
  ask();
  if (is_elastic() && !speeds_) speeds_ = ask_run_speeds(options_.launch.command);
  const bool takes_any = is_elastic() && sizes_->is_auto;
  const std::size_t least = options_.least_nodes != 0 ? options_.least_nodes : takes_any ? 1 : all;
  if (!takes_any && most == all) {
    if (auto chosen = pool.choose(most, least)) {
      start.nodes = *std::move(chosen);
      return start;
    }
  }
  std::optional<RunFit> found;
  if (is_elastic()) found = fit(std::min(most, pool.usable()));
  if (found && (!takes_any || found->nodes >= least)) {
    if (auto chosen = pool.choose(found->nodes, found->nodes)) start.nodes = *std::move(chosen);
  }
  if (start.nodes.empty()) {
    start.too_few = fmt::format(
        "fewer than {} left{}{}{}", least == 1 ? "1 node is" : fmt::format("{} nodes are", least),
        options_.segments.nodes == 0 ? "" : fmt::format(" in whole segments of {}", options_.segments.nodes),
        pool.left_out().empty() ? "" : ": ", fmt::join(pool.left_out(), "; "));
    return start;
  }
  log::info("driver", "{} of {} train with mesh.dp={}", plural(found->nodes, "node"), pool.usable(), found->dp);
  if (!takes_any)
    start.launch.command.insert(start.launch.command.end(), {"--set", fmt::format("mesh.dp={}", found->dp)});
  return start;
}

std::string Sizes::comment() const {
  if (!is_elastic() || least() == 0) return "";
  const std::vector<std::size_t> sizes = of_job();
  const std::string takes = sizes.empty() ? ""
                                          : fmt::format("{}{}{}{}", slurm::kStartComment, options_.restarts,
                                                        slurm::kSizesComment, fmt::join(sizes, ","));
  const std::string speeds =
      speeds_text(*sizes_, speeds_.value_or(std::map<int, double>{}), options_.spares,
                  std::max(options_.nodes.size(), options_.most_nodes), options_.launch.tasks_per_node);
  return fmt::format("{}{}{}{}{}", slurm::kElasticComment, plural(least(), "node"), takes, speeds, slurm::kElasticEnd);
}

std::size_t Sizes::least() const {
  const auto fewest =
      smallest_fit(*sizes_, std::max(options_.nodes.size(), options_.most_nodes), options_.launch.tasks_per_node);
  return fewest ? std::max(options_.least_nodes, fewest->nodes) : options_.least_nodes;
}

std::vector<std::size_t> Sizes::of_job() const {
  std::vector<std::size_t> sizes;
  for (std::size_t nodes = options_.spares + 1; nodes <= options_.most_nodes && sizes.size() < kMostSizes; ++nodes) {
    const std::size_t working = nodes - options_.spares;
    const std::optional<RunFit> found = fit(working);
    if (found && found->nodes == working && working >= options_.least_nodes) sizes.push_back(nodes);
  }
  return sizes;
}

Sizes::Answer Sizes::grow(std::size_t idle, std::size_t working) const {
  if (!is_elastic()) return {"nothing is asked for, and the run has one size"};
  if (options_.most_nodes == 0) return {"nothing is asked for, and without --max-nodes the run does not grow"};
  if (most_nodes_ != 0)
    return {fmt::format("nothing is asked for, and a person wants {}", plural(most_nodes_, "node"))};
  const std::size_t now = working + options_.spares;
  const bool larger = std::ranges::any_of(of_job(), [&](std::size_t size) { return size > now && size <= now + idle; });
  if (!larger) return {fmt::format("nothing is asked for, and no larger run fits {} more", plural(idle, "node"))};
  return {.said = "", .continues = true};
}

Sizes::Answer Sizes::resize(std::size_t nodes, std::size_t usable, std::size_t working) {
  if (!is_elastic()) return {kOneSize};
  const std::optional<RunFit> found = fit(std::min(nodes, usable));
  if (!found || found->nodes < options_.least_nodes) return {fmt::format("no run fits {}", plural(nodes, "node"))};
  most_nodes_ = nodes;
  if (found->nodes == working) return {fmt::format("the run has {} already", plural(found->nodes, "node"))};
  return {.said = fmt::format("the run saves, and continues with {}", plural(found->nodes, "node")), .continues = true};
}

Sizes::Answer Sizes::give_back(const std::vector<std::string>& nodes, Pool& pool, std::vector<std::string>& taken) {
  std::vector<std::string> new_ones;
  for (const std::string& node : nodes) {
    if (!pool.nodes().contains(node)) return {fmt::format("{} is not a node of this job", plain_text(node, 80))};
    if (!is_elastic() && pool.nodes().at(node).role == NodeRole::works) return {kOneSize};
    // Slurm cannot take the node of the batch script out of a job.
    if (node == options_.nodes.front()) return {fmt::format("{} runs the driver", node)};
    if (!given_back_.contains(node)) new_ones.push_back(node);
  }
  if (new_ones.empty()) return {"they were asked back before"};
  const auto usable = static_cast<std::size_t>(std::ranges::count_if(
      new_ones, [&](const std::string& node) { return pool.nodes().at(node).role <= NodeRole::suspect; }));
  const std::optional<RunFit> found = is_elastic() ? fit(pool.usable() - usable) : std::nullopt;
  if (is_elastic() && (!found || found->nodes < options_.least_nodes))
    return {fmt::format("no run fits the {} that would be left", plural(pool.usable() - usable, "node"))};
  Answer answer;
  for (const std::string& node : new_ones) {
    answer.continues = answer.continues || pool.nodes().at(node).role == NodeRole::works;
    pool.exclude(node, kAskedBack);
    given_back_.insert(node);
  }
  taken = std::move(new_ones);
  return answer;
}

}  // namespace ms::driver
