// Formats results for people, monitors and programs. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "health/checks/check.h"

namespace ms::health {

struct Report {
  std::string node = {};
  std::vector<Result> results = {};
  double wall_s = 0;     // that it took
  double at_wall_s = 0;  // when it was made; 0: not known

  // The worst: ok, warn, critical; unknown where nothing worse than a broken check was met, or nothing was checked.
  std::string outcome() const;
  int nagios_status() const;  // 0 ok, 1 warn, 2 critical, 3 unknown
  std::vector<Finding> findings() const;
};

// Findings first, what follows from another one below that (causes.h), then one line that sums up, how to drain a node
// that is unfit, and which team to call for each cause. What was skipped is shown where it is all there is, and if
// verbose.
std::string as_text(const Report& report, bool verbose);
// {"schema":1,"node":..,"outcome":"ok|warn|critical|unknown","findings":[{"code","severity","blame","entity","message",
// "measured","limit","unit","remedy","follows_from":null|{"code","entity","sure"}}],"checks":[{"code","level","outcome",
// "note","measured":[{"entity","value","unit"}],"seconds"}]}
std::string as_json(const Report& report);
// The same for several nodes: an array.
std::string as_json(const std::vector<Report>& reports);
Report from_json(const std::string& text);  // Error("report.format", node) for what is none; for reports of other nodes
// One line for all: "CRITICAL - gpu.ecc gpu 3: ... | 'label'=value;warn;crit". Of several, each node is named.
std::string as_nagios(const std::vector<Report>& reports);
// For the textfile collector: a gauge per check, and of findings; every series once.
std::string as_prometheus(const std::vector<Report>& reports);
// The same where the policy cannot be used, so that nothing was checked.
std::string no_policy_as_prometheus();
std::string list_json(const std::vector<Check>& checks);  // one object a check

// The worst of all, by Nagios' own order of badness: critical before unknown before warning.
int worst_status(const std::vector<Report>& reports);
int worst_status(const std::vector<int>& statuses);

}  // namespace ms::health
