// What a driver asks Slurm for its own job: to be queued again, to let go of nodes, what its partition has become.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "driver/options.h"
#include "slurm/commands.h"

namespace ms::driver {

class SlurmJob {
 public:
  // Both outlive it.
  SlurmJob(const DriverOptions& options, Clock& clock);

  // Queues the job again, without the nodes of `out`; returns whether that worked. Slurm ends this job's processes
  // then: the caller ignores SIGTERM.
  bool queue_again(std::vector<std::string> out);
  // Takes these nodes, on which nothing of the run is left, out of the job. Returns whether all of them have left it.
  bool let_go(const std::set<std::string>& nodes);

  struct Change {
    std::vector<std::string> gone;  // nodes of the job that have left its partition
    std::size_t idle = 0;           // nodes of the partition that the job could have
  };
  // Compares the partition with the job, which has the nodes of `without` no longer; nullopt: Slurm does not say.
  std::optional<Change> change(const std::set<std::string>& without) const;

 private:
  const DriverOptions& options_;
  Clock& clock_;
  const slurm::Commands slurm_;
  const std::uint32_t id_;
  std::size_t kept_;  // nodes of the job, as Slurm has it
};

}  // namespace ms::driver
