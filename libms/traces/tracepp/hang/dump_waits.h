// Compares the waits that dumps show with the earlier ones of the same operations: a healthy run that is dumped by hand
// waits, too. Used by hang.cpp. Pure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tracepp/hang/blame.h"

namespace ms::tracepp {

class DumpWaits {
 public:
  // Looks at all operations of the graph's groups and kinds that ended.
  DumpWaits(const HangScan& scan, const HangGraph& graph);

  // Returns whether a healthy run looks like this, too: all that is blamed is that something waits, and it waits
  // no longer than several such operations took before, or has just begun. A rank without a dump is no such wait.
  bool are_usual(const std::vector<Blame>& blames) const;
  // Returns whether all waits have just begun, and all ranks left a dump.
  bool have_just_begun() const;
  double longest_s() const;  // wait
  // Says how long the longest wait is, and how long those before were.
  std::string usual_text() const;
  // Caps the confidence of what is only inferred from a wait that is short against the time between two such calls of a
  // rank, or against what a device computes where too few have ended to tell that.
  void doubt_short(std::vector<Blame>& blames) const;
  // Says why a blame was doubted; empty: it was not.
  std::string doubt_text(const Blame& blame) const;

 private:
  struct Before {
    std::size_t ended = 0;
    // How long a member was in each by its own clock, or waited for the last one to issue it; the longest first.
    std::vector<double> waits_s;
    double interval_s = 0;  // the longest between two calls of a rank
  };
  using Key = std::pair<std::int32_t, Kind>;  // group, kind; a transfer is a send at both ends

  void add(std::size_t at, const Key& key, const std::vector<std::uint32_t>& events);
  const Before& before(const StuckOp& op) const;
  // Returns whether it waits for longer than PyTorch lets it: no healthy run does.
  bool is_given_up(const StuckOp& op) const;
  bool is_usual(const StuckOp& op) const;
  bool has_just_begun(const StuckOp& op) const;
  // Returns whether the time stamps of files may be as far ahead of the times of entries.
  bool is_within_clocks(const StuckOp& op) const;
  bool is_short(const StuckOp& op) const;
  bool is_doubtful(const Blame& blame) const;
  Key key_of(const StuckOp& op) const;

  struct Issues {
    std::int64_t seen_ns = 0;                // by the first member seen, whose clock all times are on
    std::int64_t first_ns = 0, last_ns = 0;  // among the members
  };
  const HangScan& scan_;
  const HangGraph& graph_;
  std::map<Key, Before> before_;
  std::map<Key, std::map<std::uint32_t, Issues>> issues_;       // by number; empty once all is added
  std::map<Key, std::map<std::uint32_t, double>> durations_s_;  // by number: the longest; empty once all is added
  bool is_beginning_ = false;                                   // few operations of any kind have ended
  bool lacks_ranks_ = false;                                    // a rank left no dump that is whole
};

}  // namespace ms::tracepp
