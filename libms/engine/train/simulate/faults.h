// Faults of the nodes of a simulated job: from a trace of a cluster, or drawn by hazard. Pure, but for the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ms::train {

inline constexpr double kSecondsPerDay = 86'400;

// How a job sees a fault of one of its nodes.
enum class FaultKind : std::uint8_t {
  crash,  // a rank ends
  lost,   // the node answers no more
  hang,   // ranks wait for ever
  slow,   // steps take longer
};
std::string_view to_string(FaultKind kind);

struct Fault {
  double begin_s = 0;
  double repair_s = 0;  // until the node is of use again; 0: it is at once
  FaultKind kind = FaultKind::crash;
};

struct Hazard {
  FaultKind kind = FaultKind::crash;
  double per_node_day = 0;
  double repair_s = 0;  // the mean of an exponential distribution
};

// Times in which the storage of checkpoints is away.
struct StorageOutages {
  double per_day = 0;
  double mean_s = 0;  // of an exponential distribution
};
struct Outage {
  double begin_s = 0, end_s = 0;
};

// "0.1:2h": outages a day, and how long they are in the mean. Throws Error("faults.rate", user).
StorageOutages parse_outages(const std::string& text);
// In so many seconds, by time; those that overlap are one.
std::vector<Outage> draw_outages(const StorageOutages& outages, double seconds, std::uint64_t seed);

// Either hazards of every node, or a trace of nodes.
struct FaultSource {
  std::vector<Hazard> hazards = {};
  std::vector<std::vector<Fault>> histories = {};  // of the trace's nodes that had faults, each in the order of time
  std::size_t watched = 0;                         // nodes that the trace is of
  double span_s = 0;                               // of the trace

  double per_node_day() const;                                     // faults
  double mean_repair_s(std::optional<FaultKind> kind = {}) const;  // of a fault, of this kind; 0: there are no such
};

// `text` is a rate, "0.004" or "0.004:12h" (faults of a node a day, and their mean repair), or names a file: the JSON
// of InfiniteHBD's trace, or CSV with the columns node, begin, repair (days) and, if wanted, kind; or kind,
// per_node_day, repair. `watched`: nodes that the trace is of, with those that had no fault; it must be there for
// traces. Throws Error("faults.*", user) with file and line.
FaultSource read_faults(const std::string& text, std::optional<std::int64_t> watched);

struct NodeFault {
  double begin_s = 0;
  int node = 0;
  double repair_s = 0;
  FaultKind kind = FaultKind::crash;
};

// The faults of `nodes` nodes in so many seconds, by time; those of a node do not depend on how many others there are.
// From a trace every node gets the history of one of its nodes, from any moment on and from its beginning again at its
// end; what was broken at that moment is well. Throws Error("faults.number", user) for more than ten million.
std::vector<NodeFault> draw_faults(const FaultSource& source, int nodes, double seconds, std::uint64_t seed);

}  // namespace ms::train
