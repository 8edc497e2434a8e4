// Requests of a driver to Slurm for its own job: to be queued again, to let go of nodes, what its partition has become.
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
  // How long a queue_again() tries that decides whether the job is lost.
  static constexpr double kPatience_s = 600;

  // All outlive it.
  SlurmJob(const DriverOptions& options, const slurm::Commands& slurm, Clock& clock);

  // Queues the job again, without the nodes of `bad`, and of `gone` without those on which slurmd still answers: of the
  // others Slurm itself will see that they are down, and when they are back they may work again. Returns whether that
  // worked. Where Slurm does not answer, it is asked again, with longer and longer pauses, for `patience_s`. Waits
  // until Slurm has seen that a node of the job is gone: a job that is queued again before may never start. Slurm ends
  // this job's processes then: the caller ignores SIGTERM.
  bool queue_again(const std::vector<std::string>& bad, const std::vector<std::string>& gone, double patience_s);
  // Sees to it that Slurm does not start the job again by itself (sbatch --requeue=expedite) once the script fails.
  void end_for_good();
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
  const slurm::Commands& slurm_;
  const std::uint32_t id_;
  std::size_t kept_;  // nodes of the job, as Slurm has it
};

}  // namespace ms::driver
