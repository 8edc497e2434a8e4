// The events of the ranks of one dp rank's pipeline in every step, sorted into the slots of the pattern. For
// step_builder.cpp, which processes a run one dp rank after the other so that only one is unpacked at a time. Pure.
#pragma once

#include <vector>

#include "tracepp/steps/step_pattern.h"

namespace ms::tracepp {

// The times of a slot on one rank in one step.
struct Times {
  std::int64_t begin = 0, end = 0;
  // For sections: seconds computed in it, and before it in other work that belongs to it; nanoseconds in which tp
  // collectives that it waited for moved data, and in which they waited for other ranks; when the other work began and
  // was done.
  float own = 0, before = 0;
  std::int64_t moving = 0, waiting = 0, before_begin = 0, before_end = 0;

  std::int64_t length() const { return end - begin; }
};

// The stalls of a rank in a step although all its inputs were there: before its first communication or section, and at
// the worst place; and when its last section was done. `updated`: end of the optimizer of the step before; 0: not
// known.
struct Standing {
  double late_s = 0, worst_s = 0;
  std::int64_t end = 0;
};
Standing stood_still(const StagePattern& stage, const Times* times, std::int64_t updated);

class Column {
 public:
  Column(const RunPattern& pattern, const mesh::Mesh& mesh);
  // Unpacks another dp rank. Ranks of it that are not used keep their old content.
  void read(int dp);

  const RankTrace* rank(int pp, int tp) const;  // of the run; nullptr: not used
  const Times* times(int pp, int tp, std::size_t step) const { return at(pp, tp).times.data() + step * slots(pp); }
  // Returns when the optimizer of the step before was done; 0: not known.
  std::int64_t updated_before(int pp, int tp, std::size_t step) const { return at(pp, tp).updated_before[step]; }
  // Collectives that sum gradients of shared parameters: begin of the first, and their total time; 0 if there are none.
  struct Sum {
    std::int64_t begin = 0, length = 0;
  };
  const Sum& sum(int pp, int tp, std::size_t step, std::size_t of) const { return at(pp, tp).sums[step][of]; }
  float data_wait(int pp, int tp, std::size_t step) const { return at(pp, tp).data_wait[step]; }

 private:
  struct Collective {
    std::int64_t begin = 0, duration = 0;
  };
  struct Rank {
    std::vector<Times> times;                  // [step][slot]
    std::vector<Collective> collectives;       // [step][tp collective]
    std::vector<std::int64_t> updated_before;  // [step]
    std::vector<float> data_wait;              // [step]
    std::vector<std::array<Sum, 2>> sums;      // [step], see sum_of()
  };
  const Rank& at(int pp, int tp) const { return ranks_[static_cast<std::size_t>(pp * mesh_.tp + tp)]; }
  std::size_t slots(int pp) const { return pattern_.stages[static_cast<std::size_t>(pp)].slots.size(); }
  void unpack(const RankTrace& from, Rank& to) const;
  void serve(int pp);

  const RunPattern& pattern_;
  mesh::Mesh mesh_;
  int dp_ = 0;
  std::vector<Rank> ranks_;  // [pp][tp]
};

}  // namespace ms::tracepp
