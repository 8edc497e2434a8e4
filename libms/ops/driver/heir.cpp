#include "driver/heir.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "slurm/hostlist.h"

namespace ms::driver {
namespace {

constexpr double kLook_s = 15, kTurn_s = 30, kGrace_s = 60;
constexpr int kSlurmdTimeout_s = 300;  // Slurm's default

bool is_lost(const slurm::Commands& slurm, const std::string& node, const slurm::Job& job) {
  const auto nodes = slurm::expand_hostlist(job.nodes);
  return (nodes && std::ranges::find(*nodes, node) == nodes->end()) || slurm.node(node).has_state("DOWN");
}

}  // namespace

bool inherit(const Heir& heir, const slurm::Commands& slurm, Clock& clock) {
  clock.sleep_s(kTurn_s * static_cast<double>(heir.turn));
  double patience_s = kSlurmdTimeout_s + kGrace_s;
  for (const double begin_s = clock.now_s(); clock.now_s() - begin_s < patience_s; clock.sleep_s(kLook_s)) {
    try {
      patience_s = slurm::number_of(slurm.config(), "SlurmdTimeout", kSlurmdTimeout_s) + kGrace_s;
      const slurm::Job job = slurm.job(heir.job);
      if (!job.batch || !job.runs() || job.restarts != heir.restarts) return false;
      if (!is_lost(slurm, heir.driver_node, job)) continue;
      log::warn("driver", "{} is lost, and the driver with it: job {} is queued again", heir.driver_node, heir.job);
      slurm.requeue(heir.job);
      return true;
    } catch (const Error& error) { log::warn("driver", "{}", error.message()); }
  }
  return false;
}

}  // namespace ms::driver
