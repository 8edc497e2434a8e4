// Solves what ranks have issued (tensor/sim_program.h) in virtual time: streams run side by side, events order them,
// messages wait for all who must come, and share the links that they pass. One loop over the events, in order of time;
// deterministic. Pure, but for the recorders that are given to it.
//
// Law of links: a message takes its latency, then its bytes go at the rate of its path; where several use one rank's
// link in one direction at a time, each gets an equal part of it (so does a rank's computation, of the processors of a
// node whose ranks share them).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/sim_world.h"
#include "cost/links.h"
#include "cost/roofline.h"

namespace ms::comm {

// What a rank that was recorded issues.
struct SimRecording {
  int rank = 0;  // that it was recorded as
  tensor::SimProgram program;
  std::vector<Group> groups;         // of SimWorld
  std::vector<SimMessage> messages;  // of SimWorld
};

// A rank that is simulated. What it points to outlives the solving.
struct SimRank {
  int rank = 0;
  const SimRecording* recording = nullptr;
  double slowness = 1;       // how many times as long its operations take
  double link_slowness = 1;  // how many times as long what its links carry does
  trace::Recorder* recorder = nullptr;
};

struct SimSetup {
  const cost::Cluster* cluster = nullptr;
  std::vector<SimRank> ranks;
  // Which member a member of a recorded group is where the recording runs as another rank: (recording's rank, rank,
  // member) -> member. Absent: every rank runs its own recording.
  std::function<int(int, int, int)> moved;
  // Index in `ranks` of who stands for a rank of the world.
  std::function<std::size_t(int)> stands_for;
  // Messages of groups for which this holds take no time. Absent: none.
  std::function<bool(const Group&)> is_free;
  // Seconds of an operation; absent: what cost/roofline.h says.
  std::function<double(const tensor::OpCost&)> seconds;
  std::int64_t begin_ns = 0;  // on the recorders' clocks
};

struct SimRankResult {
  double end_s = 0;                   // when its last stream was done
  std::vector<double> class_seconds;  // in operations of compute streams, by tensor::OpClass
  double busy_s() const;              // all of them
};

struct SimResult {
  double seconds = 0;  // from the first begin to the last end
  std::vector<SimRankResult> ranks;
  std::uint64_t messages = 0;  // operations of groups, each once
};

// Throws Error("cluster.link", user) where the cluster lacks a link, Error("sim.deadlock", bug) where ranks wait for
// each other.
SimResult solve(const SimSetup& setup);

}  // namespace ms::comm
