// The facts of a node that should be the same on its peers: hardware, firmware, software, links, mounts, settings. Read
// from files and NVML; nothing is loaded or changed. ms-diag facts prints them, ms-diag fleet compares them.
#pragma once

#include <map>
#include <string>

#include "health/commands/report.h"
#include "health/evidence/evidence.h"

namespace ms::health {

// By attribute: "kernel", "bios.version", "link.mlx5_0/1", "mount./scratch". What a node does not have, or does not
// tell, is absent.
using Facts = std::map<std::string, std::string>;
Facts gather_facts(Evidence& evidence);

struct NodeFacts {
  std::string node = {};
  Facts facts = {};
  Report report = {};             // of level 1
  double wall_s = 0;              // its clock, when it was asked
  bool state_known = false;       // false: it was not asked as root, so nothing is known of the next two
  double last_active_wall_s = 0;  // when level 2 last ran; 0: never
  int drains = 0;                 // by ms-diag in the last 90 days, without those that were withdrawn
};

std::string to_json(const NodeFacts& node);  // on one line
// Throws Error("facts.format", node) for a text that is none: other nodes send them.
NodeFacts node_facts_from_json(const std::string& text);

}  // namespace ms::health
