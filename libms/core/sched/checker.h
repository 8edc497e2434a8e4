// Proves a schedule, and runs it in virtual time. ms-train calls it before it executes any schedule, its own or a
// user's.
//
// The checker assumes no more than this of an executor: on every rank, compute and each of the four channels are
// streams that run their rows in order; a send and its receive complete together, once both have been reached
// (rendezvous); channels are FIFO. A row waits only for the row before it on its stream and for these, I and W being
// backward_input and backward_weight:
//   forward        its recv_forward             send_forward   its forward
//   backward, I    its recv_backward, forward   send_backward  its backward or I
//   W              its I
//   the first row that uses a slot, and recv_backward: all rows of the (chunk, microbatch) that had the slot before
//   recv_backward, on the last stage backward and I: those that had the gradient buffer before (gradient_buffers)
// A row may wait only for rows above it on its rank, so that the issuing thread never waits for an event that is
// recorded later. A schedule must also not deadlock if no row is issued before the computations above it are done: a
// GPU queues some thousand launches, then the host waits.
#pragma once

#include <string>
#include <vector>

#include "sched/schedule.h"

namespace ms::sched {

enum class Coupling {
  decoupled,  // transfers travel under compute, as said above
  // Nothing overlaps: besides, every computation waits for all transfers above it, and a receive begins only when the
  // computations and the transfers above it are done. A send still begins when its computation is done, so one that
  // stands below a receive travels beside it. An executor that waits for fewer of these is covered too.
  coupled,
};

struct RankReport {
  // Most (chunk, microbatch) with activations alive: between forward and the end of backward or W.
  int peak_chunks = 0;
  double peak_stages = 0.0;  // the same in full stages: peak_chunks / chunks
  // Forwards before the one that is paired with the first backward: all that come before that backward but the last of
  // them. 0 where there is no backward.
  int warm_up = 0;
  // Most streams of the rank (compute and channels) that are inside a row at the same moment of the virtual run: so
  // many operations must be able to progress at once.
  int at_once = 0;
  // How long a ring of buffers each chunk needs for the gradients that arrive and leave, taken in order of microbatch:
  // the most microbatches between the first row that has their gradient (recv_backward, on the last stage the backward)
  // and the last (send_backward, on the first stage the backward); at least 2 where they are sent, so that the next is
  // computed meanwhile. A shorter ring would be overwritten while in use.
  int gradient_buffers = 0;
  // By chunk, when they are launched in the virtual run: at the end of the computation above. 0 where there is none.
  std::vector<double> gathers, reductions;
  bool operator==(const RankReport&) const = default;
};

struct Report {
  bool ok = false;
  std::string problem;    // the first found, with rank and row (counted from 0); empty if ok
  double makespan = 0.0;  // the rest is filled in only if ok
  double bubble = 0.0;    // idle time over the time of all computations of a rank
  std::vector<RankReport> ranks;
};

// Proves: every (chunk, microbatch) forward and backward exactly once, the backward whole or as both its halves, with
// the transfers its virtual stage needs and no others; parameters gathered once before, gradients reduced once after;
// every row after those it waits for; of a chunk, backwards (I), weight gradients (W), received and sent gradients each
// in order of microbatch; slots within their count, one per (chunk, microbatch), never shared while in use; sends and
// receives of each channel in the same order; no deadlock, however long rows wait for the computations above them, by
// running to completion. Never throws on a bad schedule.
Report check(const Schedule& schedule, const Times& times = {}, Coupling coupling = Coupling::decoupled);

// For schedules that must be sound to go on: Error("sched.invalid", user) with the problem.
void require_sound(const Schedule& schedule, std::string_view name, Coupling coupling = Coupling::decoupled);

}  // namespace ms::sched
