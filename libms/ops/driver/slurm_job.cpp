#include "driver/slurm_job.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "slurm/hostlist.h"
#include "slurm/requeue.h"

namespace ms::driver {

SlurmJob::SlurmJob(const DriverOptions& options, Clock& clock)
    : options_(options),
      clock_(clock),
      slurm_({.conf = options.slurm_conf}),
      id_(static_cast<std::uint32_t>(options.job)),
      kept_(options.nodes.size()) {}

bool SlurmJob::queue_again(std::vector<std::string> out) {
  // Slurm without slurmdbd changes nothing of a job that has shrunk, until it has ended: it would stay held. The ledger
  // leaves those nodes out, too.
  if (kept_ != options_.nodes.size()) out.clear();
  try {
    if (out.empty()) {
      slurm_.requeue(id_);
    } else {
      slurm::requeue_excluding(slurm_, id_, out, {}, clock_);
    }
    log::info("driver", "the job is queued again{}",
              out.empty() ? std::string() : fmt::format(", without {}", slurm::fold_hostlist(out)));
    return true;
  } catch (const Error& error) { log::error("driver", "the job is not queued again: {}", error.message()); }
  return false;
}

bool SlurmJob::let_go(const std::set<std::string>& nodes) {
  std::vector<std::string> kept;
  for (const std::string& node : options_.nodes) {
    if (!nodes.contains(node)) kept.push_back(node);
  }
  if (kept.size() == kept_) return true;
  try {
    slurm_.set_job_nodes(id_, slurm::fold_hostlist(kept));
    kept_ = kept.size();
    log::info("driver", "the job has let go of {}", fmt::join(nodes, ", "));
  } catch (const Error& error) { log::error("driver", "the job keeps its nodes: {}", error.message()); }
  // scontrol leaves scripts for shells.
  for (const char* kind : {"sh", "csh"}) unlink(fmt::format("slurm_job_{}_resize.{}", id_, kind).c_str());
  return kept.size() == kept_;
}

std::optional<SlurmJob::Change> SlurmJob::change(const std::set<std::string>& without) const {
  try {
    const std::vector<std::string> there = slurm::expand_hostlist_or_throw(slurm_.partition(options_.partition).nodes);
    const std::set<std::string> partition(there.begin(), there.end());
    std::set<std::string> job;
    Change change;
    for (const std::string& node : options_.nodes) {
      if (without.contains(node)) continue;
      job.insert(node);
      if (!partition.contains(node)) change.gone.push_back(node);
    }
    if (!change.gone.empty()) return change;
    change.idle = static_cast<std::size_t>(std::ranges::count_if(slurm_.nodes(), [&](const slurm::Node& node) {
      return partition.contains(node.name) && !job.contains(node.name) && node.has_state("IDLE") &&
             !node.is_drained_or_draining();
    }));
    return change;
  } catch (const Error& error) { log::error("driver", "what SIGUSR1 means is not known: {}", error.message()); }
  return std::nullopt;
}

}  // namespace ms::driver
