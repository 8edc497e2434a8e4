// All analyses of a run at once, and what somebody should look at first. ms-tracepp report calls it. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tracepp/align.h"
#include "tracepp/breakdown.h"
#include "tracepp/bubble.h"
#include "tracepp/change_points.h"
#include "tracepp/critical_path.h"
#include "tracepp/effective.h"
#include "tracepp/hang.h"
#include "tracepp/messages.h"
#include "tracepp/suspects.h"

namespace ms::tracepp {

struct Analysis {
  Matches matches;
  Alignment clocks;
  Breakdown breakdown;
  MessageReport messages;
  Bubble bubble;
  CriticalPaths paths;
  ChangePoints changes;
  Effective effective;
  Hang hang;
  std::optional<Verdict> verdict;  // absent where steps are not of a kind that can be played again,
  std::string no_verdict;          // and why
};

// Puts the trace's times on one clock, then looks at everything.
Analysis analyse(RunTrace& trace);

// Something that costs time, and what is known of it.
struct Advice {
  double cost_share = 0;  // of the run's time, about
  std::string sentence;
  std::string hint;  // what to do; may be empty
};
// Causes before symptoms, each the most expensive first; nothing that costs less than a hundredth. At most three.
std::vector<Advice> look_first(const RunTrace& trace, const Analysis& analysis);

std::string report_text(const RunTrace& trace, const Analysis& analysis);
// One JSON document with a schema version.
std::string report_json(const RunTrace& trace, const Analysis& analysis);

// What was read: ranks, hosts, steps, events, endings, and what could not be used.
std::string info_text(const RunTrace& trace);
std::string info_json(const RunTrace& trace);
// How the hosts' clocks relate.
std::string clocks_text(const Alignment& clocks);

}  // namespace ms::tracepp
