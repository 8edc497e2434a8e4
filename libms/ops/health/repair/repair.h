// ms-diag repair, on the head node.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/cli.h"
#include "health/act/spool.h"
#include "health/commands/report.h"
#include "health/repair/plan.h"

namespace ms::health {

struct Verdict {
  Outcome3 outcome = Outcome3::unknown;
  std::string why = {};
};
// Returns the verdict of a report of the tests on a node that was drained with this reason. bad: a critical finding of
// the node itself that no user can cause. unknown: only something else than the node is accused, or what it was drained
// for was not looked at. Pure.
Verdict verdict(const Report& report, const std::string& reason);

// Returns why there is no answer of the node; empty: there is one.
std::string unreached(const Report& report);

// The kind of the node's last event in a spool; empty: there is none.
std::string last_event(const std::string& spool, const std::string& node);
// Spools the event, "withdrawn" only where it is news of the node. A failure is a warning.
void spool_for_people(const std::string& spool, const Event& event);

int repair_command(const Args& args);

}  // namespace ms::health
