// The driver: keeps a command running over the nodes of a Slurm allocation. Starts it, watches it, finds out what went
// wrong when it ends or hangs, leaves nodes out, takes spares, and starts it again. One thread, one loop; nothing in it
// waits. What it decides by is pure and lies beside it: watcher.h, judge.h, pool.h, ledger.h.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "driver/agents.h"
#include "driver/flight.h"
#include "driver/job_comment.h"
#include "driver/judge.h"
#include "driver/launch.h"
#include "driver/ledger.h"
#include "driver/losses.h"
#include "driver/metrics_port.h"
#include "driver/netcheck.h"
#include "driver/pool.h"
#include "driver/run_events.h"
#include "driver/shrink.h"
#include "driver/state.h"
#include "driver/suspects.h"
#include "driver/watcher.h"
#include "watch/recovery.h"

namespace ms::driver {

struct DriverOptions {
  std::vector<std::string> nodes;  // of the allocation
  int job = 0, restarts = 0;
  std::string partition;  // of the job
  std::string shown_job;  // as squeue shows it: "12", or "10_2" of an array
  std::string run_dir;
  LaunchSpec launch;
  std::size_t spares = 0;
  std::set<std::string> kept_for_last = {};  // of the nodes: they are the spares
  std::size_t least_nodes = 0;               // an attempt with fewer is not made; 0: all but the spares
  std::size_t most_nodes = 0;  // of an elastic run's job, which is queued again to grow; 0: it does not grow
  watch::RetryPolicy retry = {};
  int diagnose_level = 2;   // of ms-diag, for suspects; 0: they are not looked at
  int preflight_level = 0;  // for all nodes before the first attempt; 0: none
  double health_s = 60;     // between two looks of ms-diag at each node while the run trains; 0: none
  bool shrink = false;      // with too few nodes, a run of ms-train with a smaller dp
  WatchLimits limits = {};
  std::string program;       // ms-driver itself, for agents
  std::string munge_socket;  // for agents; empty: the usual one
  std::string diag = "ms-diag", netcheck = "ms-netcheck";
  std::string metrics_port;  // of MetricsPort; empty: none
  std::string notify;        // an ms-notify.toml(5); empty: nobody is told
  bool comment = false;      // the job's comment in Slurm says how the run does
  int max_requeues = 0;      // the job is queued again at most so often; 0: never
  std::string slurm_conf;
  int signals = -1;  // a signalfd: TERM, INT, HUP, USR2
};

class Driver {
 public:
  // Throws Error("driver.busy", user) where another driver has the directory.
  Driver(DriverOptions options, const Credentials& credentials, Clock& clock);

  // Until the command is done, or nothing more can be tried. Returns the exit code.
  int run();

 private:
  enum class Phase { gathering, checking, running, looking, ending, settling, waiting };

  std::string job() const;
  void adopt(DriverState state);
  void end_orphan();
  void begin_checks(double now_s);
  WatchLimits limits() const;
  void begin_attempt();
  void start_command();
  void not_started(const std::string& why, double now_s);
  std::optional<std::vector<std::string>> choose_nodes();
  bool is_elastic() const;
  std::string elastic_text() const;
  std::size_t least_of_run() const;
  std::vector<std::size_t> sizes_of_job() const;
  std::string resize(std::size_t nodes);                         // what is said to whoever asked
  std::string grow(std::size_t idle);                            // the same
  std::string leave();                                           // the same
  std::string give_back(const std::vector<std::string>& nodes);  // the same
  void save_and_go_on();
  bool let_go();
  void read_request();
  void handle(const Hub::Event& event);
  void answer_client(const Hub::Event& event);
  void read_signals();
  void read_output(bool last);
  void flush_log();
  void take_output(const std::vector<std::string>& lines);
  void watch(double now_s);
  void step(double now_s);
  void note_progress(double now_s);
  void begin_recovery(double now_s);
  void alarm(Alarm alarm, double now_s);
  void look();
  void look_early(double now_s);
  void end_command(double now_s);
  void settle(double now_s);
  std::optional<FlightNode> flight_node();
  void finish_attempt(double now_s);
  void ask_slurm(AttemptEvidence& evidence);
  void decide(const Judgement& judgement, double now_s);
  void check_network(double now_s);
  void take_network(const NetworkCheck::Result& result);
  void check_suspects(double now_s);
  void check_doubtful(double now_s);
  void clear(const std::string& node);
  void no_evidence(const std::string& node, const std::string& why);
  void take_finding(const std::string& node, const std::string& finding);
  std::optional<Alarm> packet_loss(double now_s) const;
  void lose_silent_spares(double now_s);
  void leave_out(const std::string& node, const std::string& why);
  void stop_with(int code, const std::string& why);
  void requeue();
  bool queue_again();
  bool queue_after_save();
  std::optional<VerdictRead> read_verdict() const;
  void save();
  void show(double now_s);
  void open_metrics_port();
  void comment(const std::string& text);
  void tell(const std::string& kind, const std::vector<std::string>& nodes, const std::string& code,
            const std::string& text);
  void log_rejected(double now_s);
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
  Pool pool_;
  Losses losses_;
  std::map<std::string, double> heard_s_;  // of agents
  Suspects suspects_;
  NetworkCheck network_;
  std::set<std::string> network_doubts_;  // suspects that the network may have made look so
  std::set<std::string> well_alone_;      // those of them of which ms-diag found nothing
  FlightJudge flight_;
  RunEvents events_;
  std::optional<JobComment> comment_;
  std::optional<MetricsPort> metrics_port_;
  std::string metrics_;  // as shown last
  Ledger ledger_;

  Phase phase_ = Phase::gathering;
  double phase_s_ = 0;  // since when
  int first_attempt_ = 0;
  LaunchSpec launch_;  // of the attempt
  std::optional<RunSizes> sizes_;
  std::optional<std::map<int, double>> speeds_;  // by dp; nullopt: not asked for yet
  std::size_t most_nodes_ = 0;                   // that a person wants; 0: all but the spares
  std::set<std::string> given_back_;             // asked back, out of the job or on their way
  std::size_t kept_ = 0;                         // nodes of the job, as Slurm has it
  bool resizes_ = false;                         // the attempt saves for the next one
  bool leaves_ = false;                          // and the job is queued again then
  std::optional<LongCommand> command_;
  watch::Deadlines deadlines_;
  std::optional<Watcher> watcher_;
  std::optional<Tail> output_;
  std::vector<std::string> nodes_;  // of the attempt
  std::optional<Alarm> alarm_;
  double ended_s_ = 0;             // when the command had ended
  std::set<std::string> awaited_;  // agents that owe an answer
  std::vector<NodeTask> tasks_;
  std::optional<double> looked_early_s_;  // when agents began to look at what may be a hang
  std::optional<LossyNode> lossy_;        // when it hung
  std::vector<SaidLine> lines_;
  std::optional<TaskExit> first_exit_;
  std::optional<double> fault_s_;  // when steps ceased to be done, until they are again
  std::size_t faulty_ = 0;         // and in which attempt
  double alarm_s_ = 0;
  std::int64_t resumed_at_ = -1;
  bool asked_to_stop_ = false, by_time_limit_ = false;
  bool waits_for_network_ = false;  // the next attempt does
  double wait_until_s_ = 0, shown_s_ = -1e9, saved_s_ = -1e9, looked_s_ = -1e9;
  std::size_t rejected_ = 0;        // not yet in the log
  double rejected_s_ = -1e9;        // when the log named some last
  std::set<std::string> unheeded_;  // nodes with a finding for which there is no spare
  bool log_was_full_ = false;
  std::optional<int> orphan_;  // an attempt whose tasks may still run, without anybody who knows them
  std::optional<int> result_;
};

}  // namespace ms::driver
