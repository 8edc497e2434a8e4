// Each rank's work in each step, in a few numbers, by which suspects.cpp compares ranks, links and groups. Made by
// step_builder.cpp from traces of whole runs, or from the steps alone. Pure.
#pragma once

#include <string>
#include <vector>

#include "mesh/mesh.h"
#include "tracepp/steps/step_trace.h"

namespace ms::tracepp {

// Seconds, [place in the mesh][step of the StepTrace]; NaN where not known.
struct RankTable {
  mesh::Mesh mesh;
  std::size_t steps = 0;
  std::vector<int> ranks;          // [place in the mesh]: the rank; -1: not traced
  std::vector<std::string> hosts;  // [place in the mesh]
  bool may_share_cores = true;     // ranks compute on CPUs, or nothing says what they compute on
  std::vector<float> compute;      // in forwards and backwards, without waiting for others; the same if every one of
  std::vector<float> pace;         // them took the usual time of this step: a single long one does not show
  std::vector<float> data_wait;
  std::vector<float> late;        // from when all inputs of the step's first operation were there to its begin
  std::vector<float> lost;        // stalled although all inputs were there, at the worst place of the step
  std::vector<float> receive[2];  // a receive from the previous stage, from the next: median
  // [pp rank][tp rank][step]: collectives over dp that gather parameters, and that reduce gradients: seconds per byte
  // if their sizes are known, else per collective.
  std::vector<float> gather, reduce;
  // Each computation, with those of equal work next to each other: their counts [pp rank], and seconds, [place in the
  // mesh][step][computation]. Empty if only the steps are known.
  std::vector<std::vector<std::size_t>> works;
  std::size_t computations = 0;  // of a step, at the most
  std::vector<float> each;
  std::vector<double> periods;  // [step]: from the end of the step before to its own end, over all ranks

  RankTable() = default;
  RankTable(const mesh::Mesh& on, std::size_t step_count);
  void set_works(std::vector<std::vector<std::size_t>> counts);
  // Sets what a rank computed in a step, in the order of `works`: compute, pace, each.
  void set_computed(int place, std::size_t step, const std::vector<float>& seconds);
  std::size_t at(int place, std::size_t step) const { return static_cast<std::size_t>(place) * steps + step; }
  std::size_t at_group(int pp, int tp, std::size_t step) const { return at(pp * mesh.tp + tp, step); }
};

// Returns the table of steps without a whole trace: without delays, and with the one traced rank of each cell.
// `measured` are the transfer_durations of the trace.
RankTable table_of(const StepTrace& steps, const std::vector<double>& measured);

}  // namespace ms::tracepp
