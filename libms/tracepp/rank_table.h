// What each rank did in each step, in a few numbers: what suspects.cpp compares ranks, links and groups by. Made by
// step_builder.cpp, from traces of whole runs, or from the steps alone. Pure.
#pragma once

#include <string>
#include <vector>

#include "mesh/mesh.h"
#include "tracepp/step_trace.h"

namespace ms::tracepp {

// Seconds, [place in the mesh][step of the StepTrace]; NaN where not known.
struct RankTable {
  mesh::Mesh mesh;
  std::size_t steps = 0;
  std::vector<int> ranks;          // [place in the mesh]: the rank; -1: not traced
  std::vector<std::string> hosts;  // [place in the mesh]
  std::vector<float> compute;      // in forwards and backwards, without waiting for anybody; the same if every one of
  std::vector<float> pace;         // them took what is usual in this step: a single long one does not show
  std::vector<float> data_wait;
  std::vector<float> late;        // from when all was there that the step begins with to its begin
  std::vector<float> lost;        // standing still though all was there, at the worst place of the step
  std::vector<float> receive[2];  // a message from the previous stage, from the next: median
  // [pp rank][tp rank][step]: messages over dp that gather parameters, that reduce gradients: for each byte where
  // their sizes are known, else for each message.
  std::vector<float> gather, reduce;
  // Each computation, those that are equally much work side by side: how many of each [pp rank], and seconds,
  // [place in the mesh][step][computation]. Nothing where only the steps are known.
  std::vector<std::vector<std::size_t>> works;
  std::size_t computations = 0;  // of a step, at the most
  std::vector<float> each;
  std::vector<double> periods;  // [step]: from the end of the step before to its own end, over all ranks

  RankTable() = default;
  RankTable(const mesh::Mesh& on, std::size_t step_count);
  void set_works(std::vector<std::vector<std::size_t>> counts);
  // What a rank computed in a step, in the order of `works`: compute, pace, each.
  void set_computed(int place, std::size_t step, const std::vector<float>& seconds);
  std::size_t at(int place, std::size_t step) const { return static_cast<std::size_t>(place) * steps + step; }
  std::size_t at_group(int pp, int tp, std::size_t step) const { return at(pp * mesh.tp + tp, step); }
};

// Of steps that are all that is known: nobody's delays, and of each cell the one rank that was traced. `measured` are
// the transfer_durations of the trace.
RankTable table_of(const StepTrace& steps, const std::vector<double>& measured);

}  // namespace ms::tracepp
