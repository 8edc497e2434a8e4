// What-if analysis of stragglers: a step replayed with every operation as fast as its kind usually is, and with parts
// of the run left as they were measured. Definitions of Lin et al., Understanding Stragglers in Large Model Training
// Using What-if Analysis (arXiv 2505.05713), sections 3 to 5. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tracepp/steps/replay.h"

namespace ms::tracepp {

// A part of a run: a dp rank, a stage, a kind of operation. `slowdown` is how many times as long a step takes if that
// part is as it was measured and everything else ideal; 1: it costs nothing.
struct Contribution {
  std::string name;
  double slowdown = 1;
};

struct Suspect {
  int rank = -1, dp = 0, pp = 0, tp = 0;
  // The smaller of the slowdowns of its dp rank and its stage: a single slow rank shows in both.
  double score = 1;
};

struct Stragglers {
  // Mean seconds of a step: from its first operation to its last, replayed without delays that the trace does not
  // explain, and ideal.
  double measured_s = 0, without_delays_s = 0, ideal_s = 0;
  std::vector<double> step_spans_s;    // [step]: of measured_s
  std::vector<double> step_slowdowns;  // [step]: of S
  double S = 1;                        // without_delays_s / ideal_s
  double launch_slowdown = 1;          // measured_s / without_delays_s
  // The part of the loss that is gone if the slowest 3 % of the workers (M_W), or the last stage (M_S), are ideal. Near
  // 1: they are the cause. Outside 0 .. 1: fixing them moves the critical path elsewhere.
  double M_W = 0, M_S = 0;
  std::vector<Contribution> by_dp, by_stage;  // in order of rank
  std::vector<Contribution> by_type;          // the worst first
  std::vector<Suspect> workers;               // all that were traced, the worst first
};

// A trace with the measured and the usual durations of its operations.
class WhatIf {
 public:
  // The trace must outlive it.
  explicit WhatIf(const StepTrace& trace);

  const StepTrace& trace() const { return trace_; }
  const Replay& replay() const { return replay_; }
  const std::vector<double>& measured() const { return measured_; }  // [op][lane]
  double ideal(OpType type) const { return ideal_[static_cast<std::size_t>(type)]; }

  // Return the mean seconds of a step: all operations as measured; chosen operations ideal, or all others.
  double measured_s() const { return measured_s_; }
  double ideal_s() const { return ideal_s_; }
  double with_ideal(const std::function<bool(const StepOp&)>& chosen) const;
  double with_measured(const std::function<bool(const StepOp&)>& chosen) const;
  // [step]: all as measured; all ideal.
  const std::vector<double>& measured_steps() const { return measured_steps_; }
  const std::vector<double>& ideal_steps() const { return ideal_steps_; }
  // The same with ideal durations for the chosen workers, by stage and dp rank.
  double with_ideal_workers(const std::vector<Suspect>& workers) const;
  // The same as measured, but with the durations of chosen operations multiplied by factor(op, step, dp rank).
  double with_scaled(const std::function<bool(const StepOp&)>& chosen,
                     const std::function<double(std::size_t, std::size_t, int)>& factor) const;
  // Returns [dp rank]: that dp rank as measured, all others ideal.
  std::vector<double> alone() const;

 private:
  double mean_s(bool chosen_ideal, const std::function<bool(const StepOp&)>& chosen) const;

  const StepTrace& trace_;
  Replay replay_;
  std::vector<double> measured_, ideal_;
  std::vector<std::vector<double>> ideal_rows_;  // [type][lane]
  std::vector<double> measured_steps_, ideal_steps_;
  double measured_s_ = 0, ideal_s_ = 0;
};

Stragglers find_stragglers(const WhatIf& what_if);
Stragglers find_stragglers(const StepTrace& trace);

}  // namespace ms::tracepp
