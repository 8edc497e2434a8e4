// The numbers by which ms-driver notices that a run failed and starts it again, and its answer to slow nodes. The
// simulator of failures (train/simulate/goodput.h) recovers by the same ones. Pure.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>

namespace ms::watch {

// Returns the time between two reports of an agent: some 8000 reports a second are what one processor can take in.
double report_every_s(std::size_t nodes);

struct WatchLimits {
  double every_s = 0.25;  // between two reports of an agent: see report_every_s()
  double hang_s = 600;    // until a deadline is learned
  double node_s = 60;     // of silence of a node, at most, until it is lost
  double unnamed_s = 30;  // the least learned deadline of ranks that name no sections
  double ending_s = 0.7;  // for the others to end, and to say why, once a rank has
  bool say_done = true;   // ranks say so before they end; without that an end is none of ours to judge

  // Two reports may be late: then the node's kernel is asked, and a node from which nothing comes any more, answers
  // included, may be lost; one that never answered gets more time. See Watcher::check().
  double ask_s() const { return 2 * every_s + 0.1; }
  double silent_s() const { return 2 * every_s + 1; }
  double unheard_s() const { return 2 * every_s + 9.5; }
};

inline constexpr double kLooking_s = 10;  // for agents to look at a run that hangs
inline constexpr double kKill_s = 2;      // for agents to end their tasks, before srun is ended without
inline constexpr double kVerdict_s = 1;   // for a file of another node to be seen at the driver's

// When a driver gives up, and how long it waits until then.
struct RetryPolicy {
  int max_attempts = 100;  // of this job
  int max_idle = 3;        // attempts on end that came no further
  int max_same = 5;        // that ended of the same error of the program, though they came further
};
// Seconds before the next attempt after so many that came no further. `on_others`: the last one failed for storage or
// Slurm, which need time; otherwise the first comes at once.
double wait_before_attempt_s(int idle, bool on_others);

// Stated defaults, until a ledger has measured them.
inline constexpr double kSlowLasts_s = 12 * 3600.0;  // of a slow node
inline constexpr double kRestart_s = 120;            // from the end of an attempt to a step of the next
inline constexpr double kQueueWait_s = 768;          // ByteRobust (arXiv 2509.16293), at most, on 16,384 GPUs

// Nodes of an attempt that are known to be slow, and the price of a step without them.
struct SlowNodes {
  std::size_t nodes = 1;   // at work; steps take as long as on the slowest of them
  std::size_t spares = 0;  // ready, and not slow
  double times = 1;        // as long as usual that steps take
  double lasts_s = kSlowLasts_s;
  double faults_per_s = 0;                                  // that end attempts: a spare joins the next one at no cost
  double left_s = std::numeric_limits<double>::infinity();  // until the run or its job ends
  double restart_s = kRestart_s;                            // without training: save, launch, load
  std::optional<double> queue_wait_s = {};                  // for other nodes; nullopt: the job cannot have any
};

enum class SlowAction { stay, replace, requeue };  // requeue: the job, for other nodes
struct SlowAnswer {
  SlowAction action = SlowAction::stay;
  std::string why;
};
// Chooses what costs the run the least time. Slow nodes are replaced together or not at all: one that is left keeps the
// steps as long as they are.
SlowAnswer answer_slow(const SlowNodes& slow);

}  // namespace ms::watch
