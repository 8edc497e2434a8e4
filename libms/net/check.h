// A check of a fabric: rounds are run by a crew, and what they measured is judged.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "net/crew.h"
#include "net/ecmp.h"
#include "net/report.h"
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
  std::function<void(int done, int of)> progress = {};    // rounds; `of` is 0 where nobody knows
};

// Flows of one pair, again and again with other source ports.
struct PairFlows {
  int a = 0, b = 0;  // flows go from a to b
  struct Roll {
    int first_port = 0;
    std::vector<double> alone, together;  // Gbit/s by flow
    FlowJudgement judgement;
  };
  std::vector<Roll> rolls = {};
  double together_gbps = 0;       // all flows, nobody else sends
  double beside_others_gbps = 0;  // while all pairs send
  std::string error = {};         // why there is nothing, or not all of it

  // The worst of the rolls: a slow path, then a collision.
  FlowVerdict verdict() const;
};
struct FlowsChecked {
  Checked base;  // nodes, who is missing, how long it took
  std::vector<PairFlows> pairs;
};
struct FlowOptions {
  int flows = 8, rolls = 3, repeats = 2;
};

// All throw Error("net.nodes", user) where fewer than two nodes were to be checked.
FlowsChecked check_flows(Crew& crew, const CheckOptions& options, const FlowOptions& flows);
Checked check_pairs(Crew& crew, const CheckOptions& options);  // measures by a schedule, judges nobody
Checked locate(Crew& crew, const CheckOptions& options);       // measures what it takes to name who is at fault
// The same by tests of groups (see group_search.h), for slow nodes among very many: `time` is RankCrew's time_groups.
using TimeGroups = std::function<std::vector<double>(const std::vector<std::vector<int>>& groups)>;
Checked locate_by_groups(Crew& crew, const CheckOptions& options, const TimeGroups& time);

}  // namespace ms::net
