// A check of a fabric: rounds are run by a workers, and what they measured is judged.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "net/measure/workers.h"
#include "net/report/flows_report.h"
#include "net/report/report.h"
#include "slurm/topology.h"

namespace ms::net {

enum class Cover { automatic, quick, ring, all, distance };
Cover parse_cover(const std::string& text);  // "auto", "quick" and so on; Error("cli.value", user)

struct CheckOptions {
  PairSpec spec = {};
  Cover cover = Cover::automatic;                // of `pairs`; see schedule.h
  std::optional<slurm::Topology> topology = {};  // where switches are known
  Thresholds thresholds = {};
  std::function<void(const std::string&)> announce = {};  // before anything is sent: how much, how long
  std::function<void(int done, int of)> progress = {};    // rounds; `of` is 0 if it is not known
};

struct FlowOptions {
  int flows = 8, rolls = 3, repeats = 2;
};

// All throw Error("net.nodes", user) where fewer than two nodes were to be checked.
FlowsChecked check_flows(Workers& workers, const CheckOptions& options, const FlowOptions& flows);
Checked check_pairs(Workers& workers, const CheckOptions& options);  // measures by a schedule, judges no node
Checked locate(Workers& workers, const CheckOptions& options);       // measures what it takes to name who is at fault
// The same by tests of groups (see group_search.h), for slow nodes among very many: `time` is time_groups() of
// LaunchedWorkers.
using TimeGroups = std::function<std::vector<double>(const std::vector<std::vector<int>>& groups)>;
Checked locate_by_groups(Workers& workers, const CheckOptions& options, const TimeGroups& time);

}  // namespace ms::net
