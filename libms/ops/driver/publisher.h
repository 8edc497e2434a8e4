// How a driver shows what it does: the status file, Prometheus, the job's comment, events for people, and the log.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "driver/hub.h"
#include "driver/job_comment.h"
#include "driver/options.h"
#include "driver/run_events.h"
#include "driver/state.h"
#include "driver/status.h"

namespace ms::driver {

class Publisher {
 public:
  // `options` and `clock` outlive it.
  Publisher(const DriverOptions& options, Clock& clock);

  // Writes an event of the run for people.
  void tell(const std::string& kind, const std::vector<std::string>& nodes, const std::string& code,
            const std::string& text);
  // Sets the job's comment in Slurm, if --comment asks for it, there is `elastic`, what ms-loan reads in it, or
  // `is_lost`: nothing can be written to the run's directory. That replaces no comment of the user's.
  void comment(const std::string& text, const std::string& elastic, bool is_lost);
  // Writes a file, which a disk that is full loses.
  static void keep(const std::string& path, const std::string& text);
  // Writes the status and the metrics.
  void show(const Status& status, double now_s);
  // Logs connections that proved nothing: the first at once, more of them once an hour and in the end.
  void log_rejected(Hub& hub, double now_s, bool ends);
  // Flushes the job's log, which may lie on a disk that is full for a while: that must not end a run. `output`: the
  // file that has the lines that are lost.
  void flush_log(const std::string& output);
  void send(double now_s);  // events that wait
  void finish() { events_.finish(clock_); }

 private:
  const DriverOptions& options_;
  Clock& clock_;
  const DriverFiles files_;
  RunEvents events_;
  std::optional<JobComment> comment_;
  std::size_t rejected_ = 0;  // not yet in the log
  double rejected_s_ = -1e9;  // when the log named some last
  bool log_was_full_ = false;
};

}  // namespace ms::driver
