// The job's comment in Slurm, set on a thread of its own: a controller that does not answer must not stop the driver.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "base/job_thread.h"
#include "slurm/commands.h"

namespace ms::driver {

class JobComment {
 public:
  JobComment(slurm::CommandOptions options, std::uint32_t job);

  static constexpr std::string_view kOurs = "ms-driver: ";
  // Returns at once. Of several that wait only the newest is set; one that cannot be set is dropped. `replaces`: a
  // comment that is not ours, too.
  void set(std::string text, bool replaces);

 private:
  const slurm::Commands slurm_;  // the thread's
  const std::uint32_t job_;
  std::mutex mutex_;  // guards next_
  std::string next_;  // empty: none waits
  JobThread thread_;  // last: it uses the rest
};

}  // namespace ms::driver
