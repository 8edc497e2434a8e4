// The diagnosis of a run that is slower than it should be: which rank, link or pause it is, since when, and what it
// costs. Pure.
//
// Time that the replay does not explain lowers the confidence of every finding, and of there being none.
//
// Where traces are missing, nothing tells how long others waited for these ranks: findings whose cause may lie there
// are in doubt, and the slowdowns are not known if the replay takes longer than the run.
//
// A finding needs evidence besides the replay: a rank that computes longer than those with the same work, communication
// that moves data longer than others like it, a stall although all inputs were there. Only then the replay says how
// long the run would have taken without it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tracepp/findings/finding.h"
#include "tracepp/findings/stragglers.h"
#include "tracepp/gaps.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

struct Diagnosis {
  Stragglers stragglers;
  double measured_s = 0;      // how long a step took, mean
  double unexplained = 0;     // share of it that neither the replay nor a delay of a finding explains
  bool is_contended = false;  // ranks share cores: most times show who had to wait for one
  // Confidence that no rank, link or step is at fault if no finding says so, 0 .. 1.
  double quiet_confidence = 0;
  std::vector<Finding> findings;  // the most expensive first
  std::vector<Suspect> suspects;  // ranks of faults, then of other findings, then by score; at most kMostSuspects
  std::vector<std::int64_t> steps;
  std::vector<StepLeftOut> left_out;
  Gaps gaps;                   // of the traces
  double seen_share = 1;       // of the ranks and of the steps: that could be analysed, where there are gaps
  bool knows_slowdown = true;  // false: with the gaps the replay takes longer than the run did
  mesh::Mesh mesh;
  std::vector<int> dp_ranks;  // that were analysed
  // [index in dp_ranks][stage]: computing time relative to the median cell. Drawn as a map.
  std::vector<float> cells;
  std::vector<double> step_s;  // [step]: measured
};
inline constexpr std::size_t kMostSuspects = 20;

// Throws Error("trace.shape", user) where no step can be analysed.
Diagnosis find_suspects(const RunTrace& trace);
Diagnosis find_suspects(const StepTrace& trace);

// Returns text for a terminal: at most three things to look at first, with their costs and the evidence.
std::string suspects_text(const Diagnosis& diagnosis);
// Returns the cost of a finding as text: "costs 0.0145 s of a step, 6.6 %", "cost 1.19 s once, in step 10".
std::string cost_text(const Diagnosis& diagnosis, const Finding& finding);
// Returns what it means that there is no finding, and how sure that is.
std::string quiet_text(const Diagnosis& diagnosis);
// Returns the lost time that no finding explains as text: how much, and where most of it is. Empty if it is small.
std::string lost_text(const Diagnosis& diagnosis);
// Returns tables by step, dp rank, stage and kind of operation, and a map of the workers, dp by pp.
std::string stragglers_text(const Diagnosis& diagnosis);
// One document: {"schema":1,"slowdown":{"S":..,"M_W":..,"M_S":..},"suspects":[{"rank":..,"dp":..,"pp":..,"tp":..,
// "score":..}],"findings":[..], ...}.
std::string suspects_json(const Diagnosis& diagnosis);

}  // namespace ms::tracepp
