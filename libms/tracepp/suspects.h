// The verdict on a run that is slower than it should be: which rank, link or pause it is, since when, and what it
// costs. Pure.
//
// A finding needs evidence of its own, besides what the replay says: a rank that computes longer than those that do the
// same work, a message that moves data longer than others like it, standing still though all was there. Only then it is
// asked what the run would have taken without it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tracepp/run_trace.h"
#include "tracepp/stragglers.h"

namespace ms::tracepp {

struct Finding {
  // slow_rank         computes longer than ranks with the same work
  // slow_link         messages of one edge, one group or all of one rank move data longer than others like them
  // pause             a rank, or a host, stood still in one step
  // data_stall        a dp rank waited for its tokens
  // launch_delay      ranks stood still again and again, while all that they needed was there
  // last_stage        the last pipeline stage has more to compute than the others;
  // slow_stage        another one
  // uneven_sequences  microbatches are not equally much work
  std::string code;
  std::vector<int> ranks;  // the first one is the most likely one
  std::int64_t first_step = 0, last_step = 0;
  double cost_s = 0;      // seconds of a step, mean of all steps
  double cost_share = 0;  // of Verdict::measured_s
  double confidence = 0;  // 0 .. 1
  std::string evidence;   // a sentence
};

// Something broke; else it is how the run was laid out: last_stage, slow_stage, uneven_sequences.
bool is_fault(const Finding& finding);

struct Verdict {
  Stragglers stragglers;
  double measured_s = 0;          // how long a step took, mean
  std::vector<Finding> findings;  // the most expensive first
  std::vector<Suspect> suspects;  // ranks of findings first, then by score; not more than kMostSuspects
  std::vector<std::int64_t> steps;
  std::int64_t steps_left_out = 0;
  mesh::Mesh mesh;
  std::vector<int> dp_ranks;  // that were analysed
  // [index in dp_ranks][stage]: computing, over what the median cell computes. For a map.
  std::vector<float> cells;
  std::vector<double> step_s;  // [step]: measured
};
inline constexpr std::size_t kMostSuspects = 20;

// Throws Error("trace.shape", user) where no step can be analysed.
Verdict find_suspects(const RunTrace& trace);
Verdict find_suspects(const StepTrace& trace);

// For a terminal: what to look at first, at most three things, with what they cost and why.
std::string suspects_text(const Verdict& verdict);
// What a finding costs: "costs 0.0145 s of a step, 6.6 %", "cost 1.19 s once, in step 10".
std::string cost_text(const Verdict& verdict, const Finding& finding);
// What is lost though no finding says why: how much, and where the most of it is; empty where that is little.
std::string lost_text(const Verdict& verdict);
// Tables by step, dp rank, stage and kind of operation, and a map of the workers, dp by pp.
std::string stragglers_text(const Verdict& verdict);
// One document: {"schema":1,"slowdown":{"S":..,"M_W":..,"M_S":..},"suspects":[{"rank":..,"dp":..,"pp":..,"tp":..,
// "score":..}],"findings":[..], ...}.
std::string suspects_json(const Verdict& verdict);

}  // namespace ms::tracepp
