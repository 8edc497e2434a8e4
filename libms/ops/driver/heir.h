// Queues a job again whose driver is gone, from an agent: Slurm keeps a --no-kill job on its other nodes when the node
// of its batch script is lost, and nothing trains there any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "slurm/commands.h"

namespace ms::driver {

struct Heir {
  std::uint32_t job = 0;
  int restarts = 0;         // of the job: another number is that of a later start
  std::string driver_node;  // on which the driver ran
  std::size_t turn = 0;     // of this agent's node among the others of the job
};

// Waits until Slurm has seen that the driver's node is lost, SlurmdTimeout and a minute at most, and queues the job
// again. Each agent begins half a minute after the one before it, so that thousands of them do not ask Slurm at once.
// Leaves the job alone where the node is not lost, the job does not run, or it has no batch script. Returns whether it
// was queued.
bool inherit(const Heir& heir, const slurm::Commands& slurm, Clock& clock);

}  // namespace ms::driver
