// All analyses of a run at once, and what somebody should look at first. ms-tracepp report calls it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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

// Puts the trace's times on one clock, then looks at everything. `now_s` as of find_hang.
Analysis analyse(RunTrace& trace, double now_s = 0);

// Something that costs time, and what is known of it.
struct Advice {
  enum class Is : std::uint8_t {
    fault,   // something broke
    lost,    // time that went, of which nothing says why
    design,  // how the run is laid out costs it: it could be faster, and nothing is wrong
  };
  double cost_share = 0;  // of the run's time, about
  std::string sentence;
  std::string hint = {};  // what to do; may be empty
  Is is = Is::lost;
};
std::string_view to_string(Advice::Is is);
// Faults before all else, each the most expensive first; nothing that costs less than a hundredth. At most three.
std::vector<Advice> look_first(const RunTrace& trace, const Analysis& analysis);

// What to look at first, then what was read, then tables: of many kinds the longest, or `all`.
std::string report_text(const RunTrace& trace, const Analysis& analysis, bool all = false);
// One JSON document with a schema version.
std::string report_json(const RunTrace& trace, const Analysis& analysis);

// What was read: ranks, hosts, steps, events, endings, and what could not be used.
std::string info_text(const RunTrace& trace);
std::string info_json(const RunTrace& trace);
// How the hosts' clocks relate.
std::string clocks_text(const Alignment& clocks);

}  // namespace ms::tracepp
