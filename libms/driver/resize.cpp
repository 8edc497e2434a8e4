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

// Sets launch_, too: where the run has one size and nodes are too few, a smaller one, if that is wanted and possible.
std::optional<std::vector<std::string>> Driver::choose_nodes() {
  const std::size_t all = options_.nodes.size() - std::min(options_.spares, options_.nodes.size() - 1);
  const std::size_t most = most_nodes_ == 0 ? all : std::min(all, most_nodes_);
  launch_ = options_.launch;
  sizes_ = is_ms_train(launch_.command) ? ask_run_sizes(launch_.command) : std::nullopt;
  const bool takes_any = sizes_ && sizes_->is_auto;
  const std::size_t least = options_.least_nodes != 0 ? options_.least_nodes : takes_any ? 1 : all;
  if (!takes_any && most == all) {
    if (auto chosen = pool_.choose(most, least)) return chosen;
  }
  std::optional<RunFit> fit;
  if (is_elastic()) fit = largest_fit(*sizes_, std::min(most, pool_.usable()), launch_.tasks_per_node);
  if (!fit || (takes_any && fit->nodes < least)) {
    stop_with(static_cast<int>(ExitCode::peer_lost),
              fmt::format("fewer than {} left{}{}", least == 1 ? "1 node is" : fmt::format("{} nodes are", least),
                          pool_.left_out().empty() ? "" : ": ", fmt::join(pool_.left_out(), "; ")));
    return std::nullopt;
  }
  log::info("driver", "{} of {} train with mesh.dp={}", plural(fit->nodes, "node"), pool_.usable(), fit->dp);
  if (!takes_any) launch_.command.insert(launch_.command.end(), {"--set", fmt::format("mesh.dp={}", fit->dp)});
  return pool_.choose(fit->nodes, fit->nodes);
}

bool Driver::is_elastic() const { return sizes_ && (sizes_->is_auto || options_.shrink); }

// Returns how the comment of an elastic run's job begins, for ms-loan; empty: it is none.
std::string Driver::elastic_text() const {
  if (!is_elastic()) return "";
  const auto fewest = smallest_fit(*sizes_, options_.nodes.size(), options_.launch.tasks_per_node);
  const std::size_t least = std::max(options_.least_nodes, fewest ? fewest->nodes : 0);
  return least == 0 ? "" : fmt::format("{}{}; ", slurm::kElasticComment, plural(least, "node"));
}

std::string Driver::resize(std::size_t nodes) {
  if (!is_elastic()) return "the run has one size: mesh.dp is a number, and --shrink was not given";
  const auto fit = largest_fit(*sizes_, std::min(nodes, pool_.usable()), options_.launch.tasks_per_node);
  if (!fit || fit->nodes < options_.least_nodes) return fmt::format("no run fits {}", plural(nodes, "node"));
  most_nodes_ = nodes;
  if (fit->nodes == nodes_.size()) return fmt::format("the run has {} already", plural(fit->nodes, "node"));
  save_and_go_on();
  return fmt::format("the run saves, and goes on with {}", plural(fit->nodes, "node"));
}

// The run ends after its step with a checkpoint, and decide() begins the next attempt.
void Driver::save_and_go_on() {
  if (phase_ != Phase::running) return;  // the attempt that comes next has the new size anyway
  resizes_ = true;
  begin_recovery(clock_.now_s());
  command_->signal(SIGUSR2);
}

std::string Driver::give_back(const std::vector<std::string>& nodes) {
  if (!is_elastic()) return "the run has one size: mesh.dp is a number, and --shrink was not given";
  std::vector<std::string> new_ones;
  for (const std::string& node : nodes) {
    if (!pool_.nodes().contains(node)) return fmt::format("{} is not a node of this job", plain_text(node, 80));
    // Slurm cannot take the node of the batch script out of a job.
    if (node == options_.nodes.front()) return fmt::format("{} runs the driver", node);
    if (!given_back_.contains(node)) new_ones.push_back(node);
  }
  if (new_ones.empty()) return "they were asked back before";
  const auto usable = static_cast<std::size_t>(std::ranges::count_if(
      new_ones, [&](const std::string& node) { return pool_.nodes().at(node).role <= NodeRole::suspect; }));
  const auto fit = largest_fit(*sizes_, pool_.usable() - usable, options_.launch.tasks_per_node);
  if (!fit || fit->nodes < options_.least_nodes)
    return fmt::format("no run fits the {} that would be left", plural(pool_.usable() - usable, "node"));
  bool works = false;
  for (const std::string& node : new_ones) {
    works = works || pool_.nodes().at(node).role == NodeRole::works;
    pool_.exclude(node, "asked back");
    given_back_.insert(node);
  }
  save();
  const std::string names = slurm::fold_hostlist(new_ones);
  if (!works || phase_ != Phase::running) {
    let_go();
    return fmt::format("the job lets go of {}", names);
  }
  save_and_go_on();
  return fmt::format("the run saves, and goes on without {}", names);
}

// Takes nodes out of the job that were asked back, and on which nothing of the run is left.
void Driver::let_go() {
  std::vector<std::string> kept;
  for (const std::string& node : options_.nodes) {
    if (!given_back_.contains(node)) kept.push_back(node);
  }
  if (kept.size() == kept_) return;
  try {
    slurm::Commands({.conf = options_.slurm_conf})
        .set_job_nodes(static_cast<std::uint32_t>(options_.job), slurm::fold_hostlist(kept));
    kept_ = kept.size();
    log::info("driver", "the job has let go of {}", fmt::join(given_back_, ", "));
  } catch (const Error& error) { log::error("driver", "the job keeps its nodes: {}", error.message()); }
  // scontrol leaves scripts for shells.
  for (const char* kind : {"sh", "csh"}) unlink(fmt::format("slurm_job_{}_resize.{}", options_.job, kind).c_str());
}

// SIGUSR1 came: an operator asks for something, which only Slurm says in a way that can be trusted.
void Driver::read_request() {
  try {
    const std::string asked =
        slurm::Commands({.conf = options_.slurm_conf}).job(static_cast<std::uint32_t>(options_.job)).admin_comment;
    if (!asked.starts_with(slurm::kGiveBackComment)) {
      return log::warn("driver", "SIGUSR1 was received, and the job's admin comment asks for nothing");
    }
    const std::string nodes = asked.substr(slurm::kGiveBackComment.size());
    log::warn("driver", "{} is asked back: {}", plain_text(nodes, 200),
              give_back(slurm::expand_hostlist_or_throw(nodes)));
  } catch (const Error& error) { log::error("driver", "what SIGUSR1 means is not known: {}", error.message()); }
}

}  // namespace ms::driver
