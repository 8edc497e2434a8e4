// Which nodes of a run are drained, asked from Slurm on a thread of its own: a controller that does not answer must not
// stop the driver.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/job_thread.h"
#include "slurm/commands.h"

namespace ms::driver {

using Drained = std::map<std::string, std::string>;  // by node: who drained it, and why

// Returns who of these nodes is drained; without those that are down, which are lost anyway. Pure.
Drained drained_nodes(const std::vector<slurm::Node>& nodes, const std::set<std::string>& ours);

class Drains {
 public:
  Drains(slurm::CommandOptions slurm, const std::vector<std::string>& nodes);

  // Asks Slurm, unless that is under way. Returns at once.
  void ask();
  // Returns what Slurm answered since the last call.
  std::optional<Drained> take();

 private:
  const slurm::Commands slurm_;  // the thread's
  const std::set<std::string> nodes_;
  std::mutex mutex_;  // guards answer_
  std::optional<Drained> answer_;
  JobThread thread_;  // last: it uses the rest
};

}  // namespace ms::driver
