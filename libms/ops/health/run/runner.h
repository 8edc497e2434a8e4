// Runs checks so that none can hurt the caller: every lane is a forked process, cut at its deadline. A check that hangs
// is cut and is itself a finding, with the severity of its row's on_hang, or skipped if that is none; the lane goes on
// with the next check in a new process. A check that crashes is broken. A lane in uninterruptible sleep is left behind,
// never waited for. A lane ends with the thread that called run_checks(), even if that is killed: no process is left to
// read what it finds. Passive lanes begin at once; an active check begins, in the order of the list, when no other one
// takes what it takes.
#pragma once

#include <functional>
#include <vector>

#include "health/checks/check.h"

namespace ms::health {

struct RunOptions {
  double deadline_s = 60;        // of everything; checks that did not get their turn are skipped
  double not_before_wall_s = 0;  // see Evidence
  Counters before = {};
  Asked asked = {};
  std::function<void(const Result&)> ended = {};  // called with each result as soon as there is one
};

// How long the work of a check may take, of all the time that is left: a fifth of its deadline is kept for its end.
double work_s(const Check& check, const Asked& asked, double all_s);

// In the order of `checks`. Rows with run == nullptr are a bug of the caller.
std::vector<Result> run_checks(const std::vector<Check>& checks, const Policy& policy, const RunOptions& options);

}  // namespace ms::health
