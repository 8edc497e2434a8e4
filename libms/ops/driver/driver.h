// The driver: keeps a command running over the nodes of a Slurm allocation. Starts it, watches it, finds out what went
// wrong when it ends or hangs, leaves nodes out, takes spares, and starts it again. One thread, one loop; nothing in it
// waits. What it decides by is pure and lies beside it: watcher.h, judge.h, recovery.h, pool.h, ledger.h.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "driver/agents.h"
#include "driver/attempt.h"
#include "driver/clock_jumps.h"
#include "driver/drains.h"
#include "driver/flight.h"
#include "driver/ledger.h"
#include "driver/nodes.h"
#include "driver/options.h"
#include "driver/pace.h"
#include "driver/publisher.h"
#include "driver/sizes.h"
#include "driver/slurm_job.h"
#include "driver/state.h"
#include "watch/recovery.h"

namespace ms::driver {

class Driver {
 public:
  // Throws Error("driver.busy", user) where another driver has the directory.
  Driver(DriverOptions options, const Credentials& credentials, Clock& clock);

  // Until the command is done, or nothing more can be tried. Returns the exit code.
  int run();

 private:
  enum class Phase { gathering, checking, running, looking, ending, settling, waiting };

  std::string job() const;
  void note_clock(double now_s);
  void adopt(DriverState state);
  void end_orphan();
  WatchLimits limits() const;
  void begin_attempt();
  void start_command();
  void not_started(const std::string& why, double now_s);
  std::string give_back(const std::vector<std::string>& nodes);  // what is said to whoever asked
  std::string leave();                                           // the same
  void save_and_go_on();
  void look_at_partition();
  void heed_drains(double now_s);
  void replace_drained();
  void heed_pace(double now_s);
  std::string replaceable_slow_node() const;
  watch::SlowAnswer answer_slow(double now_s);
  void handle(const Hub::Event& event);
  void answer_client(const Hub::Event& event);
  void read_signals();
  void read_output(bool last);
  bool is_replaceable() const;
  void watch(double now_s);
  void step(double now_s);
  void note_progress();
  void begin_recovery(double now_s);
  void alarm(Alarm alarm, double now_s);
  bool end_failed(double now_s);
  void look();
  void look_early(double now_s);
  void end_command(double now_s);
  void settle(double now_s);
  void finish_attempt(double now_s);
  void decide(const Judgement& judgement, double now_s);
  void stop_with(int code, const std::string& why);
  int requeues_left() const;
  bool needs_nodes() const;
  bool may_requeue() const;
  void requeue();
  bool queue_after_save();
  std::vector<std::string> bad_nodes() const;
  std::optional<VerdictRead> read_verdict() const;
  void save();
  Status status() const;
  void show(double now_s);
  void comment(const std::string& text);
  double wall_s(double at_s) const;  // of a time of the clock
  AttemptEntry& entry() { return ledger_.attempts.back(); }

  const DriverOptions options_;
  Clock& clock_;
  DriverFiles files_;
  UniqueFd lock_;
  std::optional<DriverState> earlier_;  // what a driver before this one left
  const std::string heartbeat_;         // the socket of the agents
  Hub hub_;
  Agents agents_;
  Ledger ledger_;
  Nodes nodes_;
  Sizes sizes_;
  const slurm::Commands slurm_;
  SlurmJob slurm_job_;
  Pace pace_;
  std::string slow_node_;       // that the next attempt leaves
  bool told_slow_ = false;      // the slow run was told to people
  std::string kept_slow_;       // that is kept, and was reported
  double asked_idle_s_ = -1e9;  // Slurm about idle nodes
  bool has_idle_ = false;       // there were some then
  Drains drains_;
  double asked_slurm_s_;  // about drains
  HangJudge hang_judge_;
  Publisher publisher_;

  ClockJumps clock_jumps_;
  bool is_lost_ = false;  // what was saved last
  Phase phase_ = Phase::gathering;
  double phase_s_ = 0;  // since when
  int first_attempt_ = 0;
  LaunchSpec launch_;          // of the attempt
  const int tasks_in_blocks_;  // a node, in the order of nodes; 0: which task runs where is not known
  bool resizes_ = false;       // the attempt saves for the next one
  bool leaves_ = false;        // and the job is queued again then
  watch::Deadlines deadlines_;
  std::optional<Attempt> attempt_{std::in_place};  // under way, or the last one; always there
  std::optional<double> fault_s_;                  // when steps ceased to be done, until they are again
  std::size_t faulty_ = 0;                         // and in which attempt
  bool asked_to_stop_ = false, by_time_limit_ = false;
  double wait_until_s_ = 0, shown_s_ = -1e9, saved_s_ = -1e9, looked_s_ = -1e9;
  std::optional<int> orphan_;  // an attempt whose tasks may still run, without anybody who knows them
  std::optional<int> result_;
  bool queues_again_ = false;  // the job, once the run has ended
};

}  // namespace ms::driver
