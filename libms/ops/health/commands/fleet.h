// Compares the nodes of a cluster with their peers: what differs, who is suspect, who was never tested. Pure.
//
// Peers are the nodes of the same machine, processor and GPUs. A node is said to differ in an attribute only where a
// clear majority of its peers agrees: at least three, and more than two thirds of all. Where there is none, all values
// are shown and no node is accused.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "health/commands/facts.h"

namespace ms::health {

// How far the clock of the asker and of a node are apart, as seconds between which it lies. Of nodes that were asked
// directly; else there is none.
struct ClockRange {
  double least_s = 0, most_s = 0;
};

struct FleetInput {
  std::vector<NodeFacts> nodes = {};
  std::map<std::string, ClockRange> clocks = {};                 // by node
  std::vector<std::pair<std::string, std::string>> silent = {};  // node, why
  double clock_limit_s = 1;                                      // limits.clock_error
};

using NodesByValue = std::map<std::string, std::vector<std::string>>;  // value -> nodes

struct Difference {
  std::string attribute = {};
  std::string usual = {};
  std::size_t agree = 0, of = 0;  // nodes that have the usual value, of all their peers
  NodesByValue others = {};
};
struct Undecided {
  std::string attribute = {};
  NodesByValue values = {};
};
struct Suspect {
  std::string node = {};
  std::vector<Finding> findings = {};  // of level 1
  int drains = 0;                      // in the last 90 days
};

struct Fleet {
  std::size_t asked = 0, answered = 0;
  std::vector<std::vector<std::string>> kinds = {};  // nodes that are peers, the largest kind first
  std::vector<Difference> differences = {};
  std::vector<Undecided> undecided = {};
  std::vector<Suspect> suspects = {};
  std::vector<std::string> untested = {};       // level 2 never ran there
  std::vector<std::string> tests_unknown = {};  // it is not known whether: not asked as root
  std::vector<std::string> without_peers = {};  // too few of their kind to be compared
  std::vector<std::pair<std::string, std::string>> silent = {};

  int nagios_status() const;  // 2: a critical suspect; 1: anything else above but undecided; 3: no node answered
};

inline constexpr const char* kAbsent = "(not there)";  // the value of what a node does not have

Fleet compare_fleet(const FleetInput& input);

std::string fleet_text(const Fleet& fleet);
std::string fleet_json(const Fleet& fleet);  // one document, schema 1
std::string fleet_html(const Fleet& fleet);  // one page, with nothing to load

}  // namespace ms::health
