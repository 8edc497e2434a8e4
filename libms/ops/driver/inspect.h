// Inspects a running job from outside: has every node looked at beside the job (look.h), and shows what was found and
// what could not be had.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "driver/look.h"

namespace ms::driver {

struct Inspection {
  int job = 0;
  std::vector<std::string> nodes;
  std::string dir;
  std::vector<NodeLook> looks;
  std::map<std::string, std::string> findings;  // of ms-diag, by node
  Json verdict;                                 // what ms-tracepp hang --json printed; null: nothing to judge
  std::string verdict_text;                     // the same for people
  std::string unjudged;                         // why there is no verdict though there are files; empty otherwise
  std::string unread;                           // why a log of the job is not among the evidence; empty: it is

  // Returns what could not be had, with the nodes; nodes that did not answer included.
  std::map<std::string, std::vector<std::string>> missing() const;
};

// Reads what the nodes left in `dir`.
void read_looks(Inspection& inspection);
std::string to_json(const Inspection& inspection);
std::string inspection_text(const Inspection& inspection);

}  // namespace ms::driver
