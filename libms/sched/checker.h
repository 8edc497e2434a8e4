// Proves a schedule, and runs it in virtual time. Used by ms-train before it obeys any schedule, its own or a user's.
//
// What is assumed of whoever executes it, and no more: on every rank compute and each of the four channels is a stream
// that does its rows in order; a send and its receive complete together, when both have been reached (rendezvous);
// channels are FIFO. A row waits only for the row before it on its stream and for these:
//   forward        its recv_forward             send_forward   its forward
//   backward       its recv_backward, forward   send_backward  its backward
//   the first row that uses a slot, and recv_backward: all rows of the (chunk, microbatch) that had the slot before
// A row may wait only for rows above it on its rank, so that whoever issues rows never waits for an event that comes
// later.
#pragma once

#include <string>
#include <vector>

#include "sched/schedule.h"

namespace ms::sched {

// Of a full stage, all its chunks together; a chunk takes 1/chunks of it. Transfers, gathers and reductions take no
// time.
struct Times {
  double forward = 1.0, backward = 2.0;
};

struct RankReport {
  int peak_chunks = 0;       // most (chunk, microbatch) with activations alive: between forward and end of backward
  double peak_stages = 0.0;  // the same in full stages: peak_chunks / chunks
  // Forwards before the one that is paired with the first backward: all that come before that backward but the last of
  // them. 0 where there is no backward.
  int warm_up = 0;
  // Most streams of the rank (compute and channels) that are inside a row at the same moment of the virtual run: so
  // many operations must be able to progress at once.
  int at_once = 0;
  bool operator==(const RankReport&) const = default;
};

struct Report {
  bool ok = false;
  std::string problem;    // the first found, with rank and row (counted from 0); empty if ok
  double makespan = 0.0;  // the rest is filled in only if ok
  double bubble = 0.0;    // idle time over the time of all computations of a rank
  std::vector<RankReport> ranks;
};

// Proves: every (chunk, microbatch) forward and backward exactly once, with the transfers its virtual stage needs and
// no others; parameters gathered once before, gradients reduced once after; every row after those it waits for;
// backwards of a chunk in order of microbatch; slots within their count, one per (chunk, microbatch), never shared
// while in use; sends and receives of each channel in the same order; no deadlock, by running to completion. Never
// throws on a bad schedule.
Report check(const Schedule& schedule, const Times& times = {});

// For schedules that must be sound to go on: Error("sched.invalid", user) with the problem.
void require_sound(const Schedule& schedule, std::string_view name);

}  // namespace ms::sched
