// How fast a run does its steps, against what it did before; and, if it got slower, which node that is due to. Ranks of
// a synchronous program wait for the slowest, so all of their steps take equally long, and a rank that has more to
// compute than others is no fault of its node. A node is named only if the kernel kept its ranks, and no others, from
// running. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "driver/wire.h"

namespace ms::driver {

class Pace {
 public:
  // Steps are taken together until they are so many and took so long.
  static constexpr std::int64_t kLeastSteps = 8;
  static constexpr double kLeast_s = 5;
  // A run is slow after so many in a row of such times the usual length: a save or an evaluation is one at most.
  static constexpr int kInRow = 3;
  static constexpr double kTimes = 2;

  // An attempt begins on so many nodes. What is usual holds for one number of them.
  void begin(std::size_t nodes);
  void hear(const std::string& node, const std::vector<RankState>& ranks);
  // The steps that all ranks have done; negative: not known.
  void step(std::int64_t steps, double now_s);

  struct Slow {
    double usual_s = 0, step_s = 0;  // of one step
    double since_s = 0;
    std::string node;  // empty: it is not known
    char state = '?';  // of its ranks: 'T', 'R' without a processor, or 'D', which may be storage that all nodes share
    std::string why;
    double times() const { return step_s / usual_s; }
  };
  // As of the last steps.
  const std::optional<Slow>& slow() const { return slow_; }
  double lost_s() const { return lost_s_; }  // to slow steps, in this attempt

 private:
  struct Seen {
    int reports = 0;
    std::map<char, int> kept = {};  // from running: reports by the state of such a rank
  };
  void end_block(double step_s, double seconds, double now_s);
  void name_node(Slow& slow) const;

  std::size_t nodes_ = 0;
  double usual_s_ = std::numeric_limits<double>::infinity();  // the shortest that two in a row did not exceed
  std::optional<double> before_s_;                            // of the steps before, each
  std::int64_t from_step_ = -1;
  double from_s_ = 0;
  int slow_blocks_ = 0;
  double slow_from_s_ = 0, slow_lost_s_ = 0, lost_s_ = 0;
  std::map<std::string, Seen> seen_;  // since steps are slow
  std::optional<Slow> slow_;
};

}  // namespace ms::driver
