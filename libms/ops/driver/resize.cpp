// How many nodes a run has: those that an attempt begins with, and what becomes of nodes that are asked back.
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/log.h"
#include "base/text.h"
#include "driver/driver.h"
#include "slurm/commands.h"
#include "slurm/elastic.h"
#include "slurm/hostlist.h"

namespace ms::driver {
namespace {

constexpr std::size_t kMostSizes = 64;  // in the job's comment

}  // namespace

// Sets launch_, too: where the run has one size and nodes are too few, a smaller one, if that is wanted and possible.
std::optional<std::vector<std::string>> Driver::choose_nodes() {
  const std::size_t all = options_.nodes.size() - std::min(options_.spares, options_.nodes.size() - 1);
  const std::size_t most = most_nodes_ == 0 ? all : std::min(all, most_nodes_);
  launch_ = options_.launch;
  sizes_ = is_ms_train(launch_.command) ? ask_run_sizes(launch_.command) : std::nullopt;
  if (is_elastic() && !speeds_) speeds_ = ask_run_speeds(launch_.command);
  const bool takes_any = sizes_ && sizes_->is_auto;
  const std::size_t least = options_.least_nodes != 0 ? options_.least_nodes : takes_any ? 1 : all;
  if (!takes_any && most == all) {
    if (auto chosen = nodes_.pool().choose(most, least)) return chosen;
  }
  std::optional<RunFit> fit;
  if (is_elastic()) fit = largest_fit(*sizes_, std::min(most, nodes_.pool().usable()), launch_.tasks_per_node);
  if (!fit || (takes_any && fit->nodes < least)) {
    stop_with(static_cast<int>(ExitCode::peer_lost),
              fmt::format("fewer than {} left{}{}", least == 1 ? "1 node is" : fmt::format("{} nodes are", least),
                          nodes_.pool().left_out().empty() ? "" : ": ", fmt::join(nodes_.pool().left_out(), "; ")));
    return std::nullopt;
  }
  log::info("driver", "{} of {} train with mesh.dp={}", plural(fit->nodes, "node"), nodes_.pool().usable(), fit->dp);
  if (!takes_any) launch_.command.insert(launch_.command.end(), {"--set", fmt::format("mesh.dp={}", fit->dp)});
  return nodes_.pool().choose(fit->nodes, fit->nodes);
}

bool Driver::is_elastic() const { return sizes_ && (sizes_->is_auto || options_.shrink); }

// Returns how the comment of an elastic run's job begins, for ms-loan; empty: it is none.
std::string Driver::elastic_text() const {
  if (!is_elastic() || least_of_run() == 0) return "";
  const std::vector<std::size_t> sizes = sizes_of_job();
  const std::string takes = sizes.empty() ? ""
                                          : fmt::format("{}{}{}{}", slurm::kStartComment, options_.restarts,
                                                        slurm::kSizesComment, fmt::join(sizes, ","));
  const std::string speeds =
      speeds_text(*sizes_, speeds_.value_or(std::map<int, double>{}), options_.spares,
                  std::max(options_.nodes.size(), options_.most_nodes), options_.launch.tasks_per_node);
  return fmt::format("{}{}{}{}{}", slurm::kElasticComment, plural(least_of_run(), "node"), takes, speeds,
                     slurm::kElasticEnd);
}

// The fewest nodes of which all have work; 0: there is no such number.
std::size_t Driver::least_of_run() const {
  const auto fewest =
      smallest_fit(*sizes_, std::max(options_.nodes.size(), options_.most_nodes), options_.launch.tasks_per_node);
  return fewest ? std::max(options_.least_nodes, fewest->nodes) : options_.least_nodes;
}

// Numbers of nodes, up to --max-nodes, of jobs of which all nodes would have work or be spares.
std::vector<std::size_t> Driver::sizes_of_job() const {
  std::vector<std::size_t> sizes;
  for (std::size_t nodes = options_.spares + 1; nodes <= options_.most_nodes && sizes.size() < kMostSizes; ++nodes) {
    const std::size_t working = nodes - options_.spares;
    const auto fit = largest_fit(*sizes_, working, options_.launch.tasks_per_node);
    if (fit && fit->nodes == working && working >= options_.least_nodes) sizes.push_back(nodes);
  }
  return sizes;
}

// The job goes through the queue: Slurm adds no nodes to a job that has GPUs (its select/cons_tres refuses to merge
// jobs with GRES, and leaves the donor in COMPLETING for ever). `idle`: nodes that it could have more.
std::string Driver::grow(std::size_t idle) {
  if (!is_elastic()) return "nothing is asked for, and the run has one size";
  if (options_.most_nodes == 0) return "nothing is asked for, and without --max-nodes the run does not grow";
  if (most_nodes_ != 0) return fmt::format("nothing is asked for, and a person wants {}", plural(most_nodes_, "node"));
  const std::size_t now = attempt_->nodes.size() + options_.spares;
  const bool larger =
      std::ranges::any_of(sizes_of_job(), [&](std::size_t size) { return size > now && size <= now + idle; });
  if (!larger) return fmt::format("nothing is asked for, and no larger run fits {} more", plural(idle, "node"));
  return leave();
}

// The run saves, and its job is queued again.
std::string Driver::leave() {
  if (phase_ != Phase::running || resizes_) return "no attempt runs that could save now";
  leaves_ = true;
  save_and_go_on();
  return "the run saves, and the job is queued again";
}

// Returns whether the job is queued; if it cannot be, the run goes on with the nodes that it has.
bool Driver::queue_after_save() {
  std::signal(SIGTERM, SIG_IGN);  // a requeue ends this job's processes
  entry().cause = kResizesCause;
  save();
  if (queue_again()) {
    result_ = static_cast<int>(ExitCode::stopped);
    return true;
  }
  std::signal(SIGTERM, SIG_DFL);
  entry().cause = "stopped";
  return false;
}

std::string Driver::resize(std::size_t nodes) {
  if (!is_elastic()) return "the run has one size: mesh.dp is a number, and --shrink was not given";
  const auto fit = largest_fit(*sizes_, std::min(nodes, nodes_.pool().usable()), options_.launch.tasks_per_node);
  if (!fit || fit->nodes < options_.least_nodes) return fmt::format("no run fits {}", plural(nodes, "node"));
  most_nodes_ = nodes;
  if (fit->nodes == attempt_->nodes.size()) return fmt::format("the run has {} already", plural(fit->nodes, "node"));
  save_and_go_on();
  return fmt::format("the run saves, and continues with {}", plural(fit->nodes, "node"));
}

// The run ends after its step with a checkpoint, and decide() begins the next attempt.
void Driver::save_and_go_on() {
  if (phase_ != Phase::running) return;  // the attempt that comes next has the new size anyway
  resizes_ = true;
  begin_recovery(clock_.now_s());
  attempt_->command->signal(SIGUSR2);
}

std::string Driver::give_back(const std::vector<std::string>& nodes) {
  if (!is_elastic()) return "the run has one size: mesh.dp is a number, and --shrink was not given";
  std::vector<std::string> new_ones;
  for (const std::string& node : nodes) {
    if (!nodes_.pool().nodes().contains(node)) return fmt::format("{} is not a node of this job", plain_text(node, 80));
    // Slurm cannot take the node of the batch script out of a job.
    if (node == options_.nodes.front()) return fmt::format("{} runs the driver", node);
    if (!given_back_.contains(node)) new_ones.push_back(node);
  }
  if (new_ones.empty()) return "they were asked back before";
  const auto usable = static_cast<std::size_t>(std::ranges::count_if(
      new_ones, [&](const std::string& node) { return nodes_.pool().nodes().at(node).role <= NodeRole::suspect; }));
  const auto fit = largest_fit(*sizes_, nodes_.pool().usable() - usable, options_.launch.tasks_per_node);
  if (!fit || fit->nodes < options_.least_nodes)
    return fmt::format("no run fits the {} that would be left", plural(nodes_.pool().usable() - usable, "node"));
  bool works = false;
  for (const std::string& node : new_ones) {
    works = works || nodes_.pool().nodes().at(node).role == NodeRole::works;
    nodes_.pool().exclude(node, "asked back");
    given_back_.insert(node);
  }
  leaves_ = false;
  save();
  const std::string names = slurm::fold_hostlist(new_ones);
  if (!works || phase_ != Phase::running) {
    let_go();
    return fmt::format("the job lets go of {}", names);
  }
  save_and_go_on();
  return fmt::format("the run saves, and continues without {}", names);
}

// Takes nodes out of the job that were asked back, and on which nothing of the run is left. Returns whether all have
// left it.
bool Driver::let_go() {
  std::vector<std::string> kept;
  for (const std::string& node : options_.nodes) {
    if (!given_back_.contains(node)) kept.push_back(node);
  }
  if (kept.size() == kept_) return true;
  try {
    slurm::Commands({.conf = options_.slurm_conf})
        .set_job_nodes(static_cast<std::uint32_t>(options_.job), slurm::fold_hostlist(kept));
    kept_ = kept.size();
    log::info("driver", "the job has let go of {}", fmt::join(given_back_, ", "));
  } catch (const Error& error) { log::error("driver", "the job keeps its nodes: {}", error.message()); }
  // scontrol leaves scripts for shells.
  for (const char* kind : {"sh", "csh"}) unlink(fmt::format("slurm_job_{}_resize.{}", options_.job, kind).c_str());
  return kept.size() == kept_;
}

// SIGUSR1 came: something has changed in the job's partition, and only Slurm says what in a way that can be trusted.
void Driver::read_request() {
  try {
    const slurm::Commands slurm({.conf = options_.slurm_conf});
    const std::vector<std::string> there = slurm::expand_hostlist_or_throw(slurm.partition(options_.partition).nodes);
    const std::set<std::string> partition(there.begin(), there.end());
    std::set<std::string> job;
    std::vector<std::string> gone;
    for (const std::string& node : options_.nodes) {
      if (given_back_.contains(node)) continue;
      job.insert(node);
      if (!partition.contains(node)) gone.push_back(node);
    }
    if (gone.empty()) {
      const auto idle = std::ranges::count_if(slurm.nodes(), [&](const slurm::Node& node) {
        return partition.contains(node.name) && !job.contains(node.name) && node.has_state("IDLE") &&
               !node.is_drained_or_draining();
      });
      return log::warn("driver", "SIGUSR1 was received: {}", grow(static_cast<std::size_t>(idle)));
    }
    // Without the node of its script the job has to go.
    const bool all = gone.front() == options_.nodes.front();
    log::warn("driver", "{} {} asked back: {}", slurm::fold_hostlist(gone), gone.size() == 1 ? "is" : "are",
              all ? leave() : give_back(gone));
  } catch (const Error& error) { log::error("driver", "what SIGUSR1 means is not known: {}", error.message()); }
}

}  // namespace ms::driver
