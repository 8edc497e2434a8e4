// The step that the engine's own simulator expects of a run, beside the observed one. ms-train simulate runs as a
// program: this module does not depend on the engine.
#pragma once

#include <string>
#include <vector>

#include "tracepp/findings/diff.h"
#include "tracepp/report/report.h"

namespace ms::tracepp {

struct Expected {
  std::string cluster;  // the file that says what the machines can do
  Diff diff;            // before: expected; after: observed
  double varies_s = 0;  // standard deviation of a single observed step, without extremes
  // The ranks that surely compute longer than their peers, or another fault that explains what a step takes more;
  // empty: there is none. Else the single step that a pause or a late batch made longest, with its ranks. Else, of a
  // step that takes longer than expected, why no rank is named.
  std::string culprit = {}, single_step = {}, unknown = {};
};

// Simulates a step of the run whose traces are in the only one of `paths`, run.dir or run.dir/trace, on the machines of
// `cluster`, ms-cluster(5), and compares `observed` with it. Throws Error("cli.value", user) if there are several
// paths, Error("expected.config", user) where run.dir has no config.toml, Error("expected.simulate", user) where
// ms-train refuses.
Expected compare_with_expected(const std::vector<std::string>& paths, const std::string& cluster,
                               const RunTrace& observed, const Analysis& analysis);

// Compares as one part what the simulator cannot tell apart. A simulated rank stalls only where ranks share cores;
// there chance decides which rank of a tp group waits for a core, and which ones for that rank.
void join_waits_for_cores(Diff& diff);
// Sets culprit, single_step and unknown of a comparison with this run.
void name_causes(Expected& expected, const RunTrace& observed, const Analysis& analysis);

// "a step takes 6.90s, 0.50s (8 %) more than expected: waiting for dp +0.40s; ranks 17, 33 ...". It says where the
// simulator is too far off to be an expectation, where steps vary by as much, and who is surely slow all the same.
std::string expected_sentence(const Expected& expected);
// The same, empty where it cannot be known: the numbers cannot be compared, or no step is over.
std::string known_sentence(const Expected& expected);
std::string expected_text(const Expected& expected);  // that and a table, for a terminal
std::string expected_html(const Expected& expected);  // the same as a section of a page

}  // namespace ms::tracepp
