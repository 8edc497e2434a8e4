// Reports on a check of flows, for people and programs. Pure functions of results.
#pragma once

#include <string>
#include <vector>

#include "net/judge/ecmp.h"
#include "net/report/report.h"

namespace ms::net {

// The flows of one pair, measured several times with different source ports.
struct PairFlows {
  int a = 0, b = 0;  // flows go from a to b
  struct Roll {
    int first_port = 0;
    std::vector<double> alone, together;  // Gbit/s by flow
    FlowJudgement judgement;
  };
  std::vector<Roll> rolls = {};
  double together_gbps = 0;       // all flows; no other pair sends
  double beside_others_gbps = 0;  // while all pairs send
  std::string error = {};         // why there is nothing, or not all of it

  // Returns the worst verdict of the rolls: a slow path is worse than a collision.
  FlowVerdict verdict() const;
};
struct FlowsChecked {
  Checked base;  // nodes, who is missing, how long it took
  std::vector<PairFlows> pairs;
};

std::vector<Finding> findings(const FlowsChecked& checked);
std::string as_text(const FlowsChecked& checked);
std::string as_json(const FlowsChecked& checked);

}  // namespace ms::net
