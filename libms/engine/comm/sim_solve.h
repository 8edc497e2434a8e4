// Solves the recorded programs of ranks (tensor/sim_program.h) in virtual time: streams run side by side, events order
// them, and communication operations wait for all members and share links. One event loop, in order of time;
// deterministic. Pure, except for the recorders that it writes to.
//
// Link model: an operation takes its latency, then its bytes are transferred at the rate of its path; operations that
// use one rank's link in one direction at the same time get equal shares of it. Where ranks share the processors of a
// node, streams take turns as those of the CPU device do, one on each processor until it must wait; so do messages
// between such ranks: each member copies what it receives on a processor, for as long as the link model says.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/sim_world.h"
#include "cost/links.h"
#include "cost/roofline.h"

namespace ms::comm {

// The recorded program of one rank.
struct SimRecording {
  int rank = 0;  // the rank it was recorded as
  tensor::SimProgram program;
  std::vector<Group> groups;        // of SimWorld
  std::vector<SimCommOp> comm_ops;  // of SimWorld
};

// A simulated rank. Its recording and recorder must outlive solve().
struct SimRank {
  int rank = 0;
  const SimRecording* recording = nullptr;
  double slowness = 1;       // factor on the time of its operations
  double link_slowness = 1;  // factor on the time of transfers over its links
  trace::Recorder* recorder = nullptr;
};

struct SimSetup {
  const cost::Cluster* cluster = nullptr;
  std::vector<SimRank> ranks;
  // Maps a member of a recorded group to a rank when the recording runs as another rank: (recording's rank, rank,
  // member) -> member. Absent: every rank runs its own recording.
  std::function<int(int, int, int)> moved;
  // Returns the index in `ranks` of the rank that represents a rank of the world.
  std::function<std::size_t(int)> stands_for;
  // Groups whose operations take no time. Absent: none.
  std::function<bool(const Group&)> is_free;
  // Returns the share of the network's rate that collisions of flows leave to a group. Absent: 1.
  std::function<double(const Group&)> network_share;
  // Returns the seconds of an operation. Absent: the roofline of cost/roofline.h.
  std::function<double(const tensor::OpCost&)> seconds;
  std::int64_t begin_ns = 0;  // on the recorders' clocks
};

struct SimRankResult {
  double end_s = 0;                   // when its last stream finished
  std::vector<double> class_seconds;  // in operations of compute streams, by tensor::OpClass
  double busy_s() const;              // their sum
};

struct SimResult {
  double seconds = 0;  // until the last rank finished
  std::vector<SimRankResult> ranks;
  std::uint64_t comm_ops = 0;  // communication operations, each counted once per group
};

// Throws Error("cluster.link", user) if the cluster file lacks a link, Error("sim.deadlock", bug) if ranks wait for
// each other forever.
SimResult solve(const SimSetup& setup);

}  // namespace ms::comm
