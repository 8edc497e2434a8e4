// Runs all analyses of a run, and picks what to look at first. ms-tracepp report calls it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tracepp/clock/align.h"
#include "tracepp/findings/change_points.h"
#include "tracepp/findings/last_comers.h"
#include "tracepp/findings/suspects.h"
#include "tracepp/hang/hang.h"
#include "tracepp/steps/breakdown.h"
#include "tracepp/steps/bubble.h"
#include "tracepp/steps/communication.h"
#include "tracepp/steps/critical_path.h"
#include "tracepp/steps/device_paths.h"
#include "tracepp/steps/effective.h"
#include "tracepp/steps/exposed.h"
#include "tracepp/steps/idle_causes.h"
#include "tracepp/steps/kernels.h"

namespace ms::tracepp {

struct Analysis {
  Matches matches;
  Alignment clocks;
  Breakdown breakdown;
  std::vector<RankIdle> idle;        // by rank; empty: the trace does not record the host
  std::vector<RankKernels> kernels;  // by rank; empty: not a trace of torch.profiler
  CommReport comms;
  std::vector<ExposedComm> exposed;  // by group and operation; empty: the trace does not record the host
  Bubble bubble;
  CriticalPaths paths;
  DevicePaths device_paths;  // instead, where the trace records the host
  ChangePoints changes;
  Effective effective;
  Hang hang;
  std::vector<LateRank> late;          // what ranks did that came last to collectives; empty: not known
  std::optional<Finding> last_comer;   // the finding where there is no diagnosis
  std::optional<Diagnosis> diagnosis;  // absent if the steps cannot be replayed,
  std::string no_diagnosis;            // and the reason
};

// Returns which share of the time of devices is of categories that are not known; empty: none.
std::string unknown_device_text(const RunTrace& trace);

// Puts the trace's times on one clock and runs all analyses. `now_s`: see find_hang.
Analysis analyse(RunTrace& trace, double now_s = 0);

// A cost of time, with its cause or a hint.
struct Advice {
  enum class Is : std::uint8_t {
    fault,   // something broke
    lost,    // time without a known cause
    design,  // a consequence of the run's layout: it could be faster, but nothing is wrong
  };
  double cost_share = 0;  // approximate part of the run's time
  std::string sentence;
  std::string hint = {};  // what to do; may be empty
  Is is = Is::lost;
  double confidence = -1;  // of the cause; below 0: the sentence states what was measured
  // The same for programs: a name of FindingCode or IdleCause, or "communication", "bubble", "copies", "slower",
  // "hang".
  std::string_view cause = {};
  int rank = -1;          // that has it; -1: no one rank
  std::string line = {};  // where its host was mostly: "train.py(212): step"
};
std::string_view to_string(Advice::Is is);
// Returns at most three: faults, then what was found to be uneven, then other costs, each group with the most expensive
// first; nothing that costs less than a hundredth.
std::vector<Advice> look_first(const RunTrace& trace, const Analysis& analysis);

// Returns the line above that list: whether something is wrong, and how sure that is.
std::string verdict_text(const Analysis& analysis, const std::vector<Advice>& list);
// Returns that line and the list as text for a terminal.
std::string first_text(const RunTrace& trace, const Analysis& analysis);

// Returns the text for a terminal: what to look at first, what was read, then tables, with the longest kinds of work or
// `all`.
std::string report_text(const RunTrace& trace, const Analysis& analysis, bool all = false);
// Returns the document with a schema version.
Json report_json(const RunTrace& trace, const Analysis& analysis);

// Returns the critical path, as text for a terminal.
std::string paths_text(const RunTrace& trace, const Analysis& analysis);
// Return what was read: ranks, hosts, steps, events, endings, and unusable records.
std::string info_text(const RunTrace& trace);
std::string info_json(const RunTrace& trace);
// Returns how the hosts' clocks relate.
std::string clocks_text(const Alignment& clocks);

}  // namespace ms::tracepp
