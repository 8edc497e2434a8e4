// Events of a run, for people: files in DIR/driver/events, in the form of ms-diag's spool, which
// `ms-diag notify --run DIR` sends to Alertmanager, to Slack and by mail. The driver speaks no HTTP; it starts that
// program.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "driver/command.h"
#include "driver/state.h"
#include "health/act/spool.h"

namespace ms::driver {

class RunEvents {
 public:
  // `config`: of ms-notify.toml(5), for `diag`; empty: events are written and not sent.
  RunEvents(const std::string& run_dir, std::string diag, std::string config)
      : run_dir_(run_dir), files_(run_dir), diag_(std::move(diag)), config_(std::move(config)) {}

  // Writes it. A disk that is full loses it, with a warning.
  void add(const health::Event& event);
  // Starts to send what waits, one sender at a time; where one did not reach everybody, again after a while.
  void send(double now_s);
  // Sends the last ones and waits for that some seconds: Slurm kills the sender when the job's script ends.
  void finish(Clock& clock);

 private:
  const std::string run_dir_;
  const DriverFiles files_;
  const std::string diag_, config_;
  bool waiting_ = false;  // an event has not been sent to everybody
  std::optional<LongCommand> sender_;
  double next_s_ = 0, began_s_ = 0;
};

}  // namespace ms::driver
