// Finds the critical path of each step: from its end backwards, always to what was waited for last, over all ranks. A
// step gets shorter only if something on this path gets faster. Requires the times of all ranks to be on one clock.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tracepp/matching.h"
#include "tracepp/run_trace.h"
#include "tracepp/steps/breakdown.h"

namespace ms::tracepp {

enum class PieceOf : std::uint8_t {
  computing,  // a section, from its begin or from the end of a tp collective that it waited for
  transfer,   // communication, from the arrival of its last member
  data_wait,  // nothing ran because the host waited for data
  save,
  delay,  // nothing ran, and the trace does not say why: launch, scheduling, work that was not traced
};
inline constexpr int kPiecesOf = 5;
std::string_view to_string(PieceOf of);

struct PathPiece {
  PieceOf of = PieceOf::delay;
  std::uint32_t rank = 0;       // index in RunTrace::ranks
  std::uint32_t event = kNone;  // index in its events; kNone of a delay
  std::int64_t begin_ns = 0, end_ns = 0;
  static constexpr std::uint32_t kNone = 0xffffffff;
};

// A step of the run lasts from the end of the previous step on the last rank to its own end on the last rank.
struct StepPath {
  std::int32_t step = kNoStep;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::vector<PathPiece> pieces;  // in order of time, without gaps, from begin_ns to end_ns
};

// The share of all paths that pieces of one kind take.
struct PathShare {
  PieceOf of = PieceOf::delay;
  KindOfWork work;                    // Kind::other of a delay
  GroupAxis axis = GroupAxis::other;  // of a transfer
  std::int64_t time_ns = 0;
};
struct RankShare {
  std::uint32_t rank = 0;  // index
  std::int64_t time_ns = 0, computing_ns = 0;
};

struct CriticalPaths {
  std::string unknown;          // why there are none; empty: there are
  std::vector<StepPath> steps;  // rising
  std::int64_t time_ns = 0;     // of all of them
  // The largest first.
  std::vector<PathShare> by_kind;
  std::vector<RankShare> by_rank;  // ranks that are on some path
};

// `breakdown` must be of the same trace.
CriticalPaths critical_paths(const RunTrace& trace, const Matches& matches, const Breakdown& breakdown);

}  // namespace ms::tracepp
