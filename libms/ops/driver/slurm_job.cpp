#include "driver/slurm_job.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/log.h"
#include "slurm/hostlist.h"
#include "slurm/reach.h"
#include "slurm/requeue.h"

namespace ms::driver {
namespace {

constexpr double kFirstPause_s = 2, kLongestPause_s = 60;
constexpr double kSettle_s = 60;  // a controller at its limits takes 10 s for an answer

}  // namespace

SlurmJob::SlurmJob(const DriverOptions& options, const slurm::Commands& slurm, Clock& clock)
    : options_(options),
      clock_(clock),
      slurm_(slurm),
      id_(static_cast<std::uint32_t>(options.job)),
      kept_(options.nodes.size()) {}

bool SlurmJob::queue_again(const std::vector<std::string>& bad, const std::vector<std::string>& gone,
                           double patience_s) {
  const double until_s = clock_.now_s() + patience_s;
  for (double pause_s = kFirstPause_s;; pause_s = std::min(2 * pause_s, kLongestPause_s)) {
    try {
      const slurm::Config config = slurm_.config();
      slurm::RequeueOptions options = slurm::requeue_without_silence(slurm_, config);
      options.say = [](const std::string& text) { log::warn("driver", "{}", text); };
      options.settle_s = kSettle_s;
      std::vector<std::string> out;
      // Slurm without slurmdbd changes nothing of a job that has shrunk, until it has ended: it would stay held. The
      // ledger leaves those nodes out, too.
      if (kept_ == options_.nodes.size()) {
        const std::vector<std::string> silent = slurm::silent_nodes(slurm_, config, gone);
        out = bad;
        std::ranges::copy_if(gone, std::back_inserter(out),
                             [&](const std::string& node) { return std::ranges::find(silent, node) == silent.end(); });
      }
      slurm::requeue_excluding(slurm_, id_, out, options, clock_);
      log::info("driver", "the job is queued again{}",
                out.empty() ? std::string() : fmt::format(", without {}", slurm::fold_hostlist(out)));
      return true;
    } catch (const Error& error) {
      if (error.kind() != slurm::kNoAnswer || clock_.now_s() + pause_s > until_s) {
        log::error("driver", "the job is not queued again: {}", error.message());
        return false;
      }
      log::warn("driver", "the job is not queued again yet: {}; the next try is in {:.0f} s", error.message(), pause_s);
    }
    clock_.sleep_s(pause_s);
  }
}

void SlurmJob::end_for_good() {
  try {
    if (!slurm_.is_expedited(id_)) return;
    slurm_.forbid_requeue(id_);
    log::info("driver", "the job is not queued again, though it was submitted with --requeue=expedite");
  } catch (const Error& error) {
    log::warn("driver", "whether Slurm queues the job again is not known: {}", error.message());
  }
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
  } catch (const Error& error) {
    log::error("driver", "what the partition has become is not known: {}", error.message());
  }
  return std::nullopt;
}

}  // namespace ms::driver
