// How fast messages were: for every group and kind of message how long members waited for the last one to come, how
// long the transfer took from then on, and at which bandwidth; and which groups are slower than others like them. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "tracepp/matching.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

// What all operations of a row have in common.
struct MessageClass {
  GroupAxis axis = GroupAxis::other;
  Kind kind = Kind::other;  // of a pair that sends and receives, Kind::send
  Purpose purpose = Purpose::none;
  std::int64_t size_bytes = -1;  // -1: not known
  int members = 0;               // of the group; where it is not known, the most that were seen
  bool one_host = false;         // all members that were traced ran on one host
  bool operator==(const MessageClass&) const = default;
};

// The operations of one class in one group. Only complete ones have times: all members were traced and ended.
struct MessageRow {
  std::int32_t group = -1;     // in RunTrace::groups
  std::uint32_t of_class = 0;  // in MessageReport::classes
  std::uint64_t operations = 0, complete = 0;
  double skew_p50_s = 0, skew_p99_s = 0;          // from the first member's coming to the last one's
  std::int64_t wait_ns = 0;                       // of all members together, all operations
  double transfer_p50_s = 0, transfer_p99_s = 0;  // from the last member's coming to the last one's end
  std::int64_t transfer_ns = 0;                   // of all operations together
  // Bytes a second of the median transfer: of the operation's size, and of what a link has to carry for it (the factors
  // below); 0 where size or transfer is not known.
  double algorithm_bandwidth = 0, bus_bandwidth = 0;
  // Median transfer over the median of the rows of its class; 1 where there are fewer than three.
  double ratio = 1;
  bool is_suspect = false;  // slower than others of its class, and by more than these differ among each other
};

// All rows of a class.
struct ClassSummary {
  std::uint64_t groups = 0, operations = 0, complete = 0;
  // Medians over the groups; p99 is the slowest group's.
  double skew_p50_s = 0, transfer_p50_s = 0, transfer_p99_s = 0, bus_bandwidth = 0;
};

// All channels from one stage to another.
struct EdgeSummary {
  int from_stage = 0, to_stage = 0;
  Purpose purpose = Purpose::none;
  std::uint64_t channels = 0, complete = 0;
  double transfer_p50_s = 0, transfer_p99_s = 0, bus_bandwidth = 0;  // as in ClassSummary
  double ratio = 1;                                                  // of transfer_p50_s to the median edge
};

// How often a rank was the last one to come to a collective over tp or dp, whose members do equal work, and how long
// the others waited for it. Where the mesh is not known: to any collective but those of a pipeline.
struct Lateness {
  std::uint64_t collectives = 0, last = 0;  // complete ones, of more than one member
  std::int64_t caused_ns = 0;               // waiting of the others when it was the last one
  std::int64_t waited_ns = 0;               // its own
};

struct MessageReport {
  std::vector<MessageClass> classes;    // by axis, kind, purpose, size, members
  std::vector<MessageRow> rows;         // by class, then group
  std::vector<ClassSummary> summaries;  // [class]
  std::vector<EdgeSummary> edges;       // of the pipeline: by purpose, then stages
  std::vector<std::uint32_t> suspects;  // rows that may be on a slow link, the slowest first
  std::vector<Lateness> by_rank;        // [rank's index]
};

MessageReport measure_messages(const RunTrace& trace, const Matches& matches);

// What every link carries of an operation among n, as part of its size: 2 (n - 1) / n of an all_reduce, (n - 1) / n of
// an all_gather, a reduce_scatter and an all_to_all, all of anything else. (The factors that nccl-tests publishes.)
double bus_factor(Kind kind, int members);

}  // namespace ms::tracepp
