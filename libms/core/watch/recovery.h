// The numbers by which ms-driver notices that a run failed and starts it again. The simulator of failures
// (train/simulate/goodput.h) recovers by the same ones. Pure.
#pragma once

#include <cstddef>

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

}  // namespace ms::watch
