// Measures communication: for every group and kind of operation how long members waited for the last one to arrive, how
// long the transfer took from then on, and at which bandwidth; and which groups are slower than others like them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tracepp/matching.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

// The attributes that all operations of a row share.
struct CommClass {
  GroupAxis axis = GroupAxis::other;
  Kind kind = Kind::other;  // Kind::send for the pair of a send and its receive
  Purpose purpose = Purpose::none;
  std::int64_t size_bytes = -1;  // -1: not known
  int members = 0;               // of the group; if unknown, the most that were seen
  bool one_host = false;         // all members that were traced ran on one host
  bool operator==(const CommClass&) const = default;
};

// The operations of one class in one group. Only complete ones have times: all members were traced and ended.
struct CommRow {
  std::int32_t group = -1;     // in RunTrace::groups
  std::uint32_t of_class = 0;  // in CommReport::classes
  std::uint64_t operations = 0, complete = 0;
  double skew_p50_s = 0, skew_p99_s = 0;          // from the first member's arrival to the last one's
  std::int64_t wait_ns = 0;                       // of all members together, all operations
  double transfer_p50_s = 0, transfer_p99_s = 0;  // from the last member's arrival to the last one's end
  std::int64_t transfer_ns = 0;                   // of all operations together
  // Bytes per second of the median transfer: of the operation's size, and of the traffic of a link (see bus_factor); 0
  // if size or transfer time is not known.
  double algorithm_bandwidth = 0, bus_bandwidth = 0;
  // The median transfer divided by the median of the rows of its class; 1 if there are fewer than three.
  double ratio = 1;
  bool is_suspect = false;  // slower than others of its class, by more than they differ among each other
};

// A summary of all rows of a class.
struct ClassSummary {
  std::uint64_t groups = 0, operations = 0, complete = 0;
  // Medians over the groups; p99 is the slowest group's.
  double skew_p50_s = 0, transfer_p50_s = 0, transfer_p99_s = 0, bus_bandwidth = 0;
};

// A summary of all channels from one stage to another.
struct EdgeSummary {
  int from_stage = 0, to_stage = 0;
  Purpose purpose = Purpose::none;
  std::uint64_t channels = 0, complete = 0;
  double transfer_p50_s = 0, transfer_p99_s = 0, bus_bandwidth = 0;  // as in ClassSummary
  double ratio = 1;                                                  // of transfer_p50_s to the median edge
};

// How often a rank was the last one to arrive at a collective over tp or dp, whose members do equal work, and how long
// the others waited for it. In traces of other programs: at any collective of members of one stage, also without the
// members that were not traced.
struct Lateness {
  std::uint64_t collectives = 0, last = 0;  // of more than one member
  std::uint64_t partial = 0, guessed = 0;   // of them: members were not traced; who meets in them is a guess
  std::int64_t caused_ns = 0;               // waiting of the others when it was the last one
  std::int64_t waited_ns = 0;               // its own
  std::map<std::int32_t, std::int64_t> caused_in = {};  // caused_ns by step; in traces of other programs
};

// Operations of a power of two of bytes, up to twice as many, on one axis.
struct SizeBucket {
  GroupAxis axis = GroupAxis::other;
  Kind kind = Kind::other;
  int members = 0;
  std::int64_t least_bytes = 0;
  std::uint64_t operations = 0;
  double bus_bandwidth = 0;  // bytes per second, of all their bytes and transfers: large ones weigh more
};

struct CommReport {
  std::vector<CommClass> classes;       // by axis, kind, purpose, size, members
  std::vector<CommRow> rows;            // by class, then group
  std::vector<ClassSummary> summaries;  // [class]
  std::vector<EdgeSummary> edges;       // of the pipeline: by purpose, then stages
  std::vector<std::uint32_t> suspects;  // rows that may be on a slow link, the slowest first
  std::vector<Lateness> by_rank;        // [rank's index]
};

// Returns them by axis, kind, members and size; without operations of unknown size or transfer.
std::vector<SizeBucket> size_buckets(const CommReport& report);

CommReport measure_communication(const RunTrace& trace, const Matches& matches);

// Returns the traffic of each link for an operation among n members, as a fraction of its size: 2 (n - 1) / n for an
// all_reduce, (n - 1) / n for an all_gather, a reduce_scatter and an all_to_all, 1 for anything else. (The factors that
// nccl-tests publishes.)
double bus_factor(Kind kind, int members);

}  // namespace ms::tracepp
