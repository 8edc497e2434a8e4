// Finds the nodes, switches, links and directions that make a fabric slow, with as few tests as that takes: a cover
// first, then whatever looked bad again, and its two ends with nodes that are known to be good. Pure: what is to be
// measured next goes out, what was measured comes in.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "net/judge/explain.h"
#include "net/measure/schedule.h"

namespace ms::net {

struct LocateOptions {
  Layout layout = {};
  Thresholds thresholds = {};
};
// The cover: all pairs of up to so many nodes, else so many rounds.
inline constexpr int kAllPairs = 32, kCover = 3;

struct Fault {
  Culprit culprit;
  std::vector<Symptom> symptoms;  // at least one
  // The middle of what was measured of it, and what is normal.
  double gbps = -1, latency_us = -1, lost = 0;  // lost: a share, of all datagrams
  double times = 0;                             // as long as normal, where only that is known; 0: it is not
  Normal normal;
  std::string words = {};  // the error of the first test without a result
  double confidence = 0;   // (bad + 1) / (of + 2): Laplace's rule of succession, of the symptom that says most
};

class Locator {
 public:
  static constexpr int kMostRounds = 60;  // of tests after the cover

  Locator(int nodes, LocateOptions options);

  // Returns the next round of pairs, to be tested at the same time; nullopt: the search is done.
  std::optional<Round> next();
  // Is that round of the cover? Then streams of both directions go at once; else one after the other, because where one
  // direction is slow, the acknowledgements of the other are late, and both look slow.
  bool covering() const { return rounds_ < static_cast<int>(cover_.size()); }
  void take(const std::vector<PairResult>& results);

  std::vector<Fault> faults() const;
  // Returns those of the faults that no further test could clear, for a search that something else ended: a node may
  // have looked slow only beside others, or in a bad moment.
  std::vector<Fault> decided_faults();
  // Returns the nodes without a fault that were measured at least once.
  std::vector<int> healthy() const;
  const std::vector<PairResult>& results() const { return results_; }
  std::int64_t pairs_untested() const;
  // Returns the number of ways that were slow while others sent, but not alone on the fabric.
  int crowded_ways() const;
  // Returns the number of pairs that were bad once and have not been tested again, for lack of time.
  int undecided_pairs() { return static_cast<int>(doubtful().pairs.size()); }
  // Returns the number of ways that were slow each time, though healthy ones are slow as often at such waits for a CPU.
  int ways_by_chance() const;
  // Returns the number of pairs that were late only while their processes waited for a CPU.
  int pairs_without_cpu() const;
  int cover_rounds() const { return static_cast<int>(cover_.size()); }

 private:
  struct Of {  // a symptom
    Ways ways;
    std::vector<Culprit> culprits;
    std::set<Pair> set_aside;  // ways that were slow while both directions sent, and do not count any more
  };
  std::vector<Of> judge() const;
  // Tests that are still needed before a verdict: nodes in doubt, with other partners, and pairs by themselves.
  struct Doubts {
    std::vector<Pair> nodes, pairs;
  };
  Doubts doubtful();
  // Returns how many ways are meant that were slow, and that no node or switch explains.
  int unexplained_ways(const std::function<bool(const Ways::Cell&, int measured)>& is_meant) const;
  std::set<int> gone() const;  // agents that are no longer there
  std::set<int> one_way_peers(int node) const;
  void measure(Fault& fault) const;
  int& tests(int a, int b) {
    return tests_[static_cast<std::size_t>(std::min(a, b)) * static_cast<std::size_t>(n_) +
                  static_cast<std::size_t>(std::max(a, b))];
  }

  int n_;
  LocateOptions options_;
  std::vector<Round> cover_;
  std::size_t covered_ = 0;
  std::vector<PairResult> results_;
  std::vector<int> tests_;    // by pair, how often
  std::set<int> slow_nodes_;  // that looked so while both directions went at once
  int rounds_ = 0;
};

}  // namespace ms::net
