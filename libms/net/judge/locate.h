// Finds the nodes, switches, links and directions that make a fabric slow, with as few tests as that takes: a cover
// first, then whatever looked bad again, and its two ends with nodes that are known to be good. Pure: what is to be
// measured next goes out, what was measured comes in.
#pragma once

#include <algorithm>
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
  std::string words = {};  // of whom it was that nothing came from
  double confidence = 0;   // (bad + 1) / (of + 2): Laplace's rule of succession, of the symptom that says most
};

class Locator {
 public:
  Locator(int nodes, LocateOptions options);

  // The next round of pairs, to be tested at the same time; nullopt: all is known that is asked for.
  std::optional<Round> next();
  // Is that round of the cover? Then streams of both directions go at once; else one after the other, because where one
  // direction is slow, the acknowledgements of the other are late, and both look slow.
  bool covering() const { return rounds_ < static_cast<int>(cover_.size()); }
  void take(const std::vector<PairResult>& results);

  std::vector<Fault> faults() const;
  // Nodes that nothing is said against, measured at least once.
  std::vector<int> healthy() const;
  const std::vector<PairResult>& results() const { return results_; }
  std::int64_t pairs_untested() const;
  // Ways that were slow while others sent and were not when they had the fabric for themselves.
  int crowded_ways() const;
  // Pairs that were bad once, and that there was no time to test again.
  int undecided_pairs() { return static_cast<int>(doubtful().pairs.size()); }
  int cover_rounds() const { return static_cast<int>(cover_.size()); }

 private:
  struct Of {  // a symptom
    Ways ways;
    std::vector<Culprit> culprits;
  };
  std::vector<Of> judge() const;
  // What should be tested before anything is said: nodes in doubt with others, and pairs by themselves.
  struct Doubts {
    std::vector<Pair> nodes, pairs;
  };
  Doubts doubtful();
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
