// ms-diag run: which checks, here or on other nodes, under which policy. The prolog has its own way (prolog.h), which
// loads nothing and asks no other node.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "health/commands/report.h"

namespace ms::health {

struct RunRequest {
  std::string config = {};  // the policy; empty: that of the site, if there is one
  int level = 1;
  std::string only = "*";
  double deadline_s = 0;  // 0: as long as the checks that are meant may take
  Asked asked = {};
  double since_wall_s = 0;                             // kernel messages from before do not count
  std::optional<std::vector<std::string>> nodes = {};  // nullopt: this one
  std::string ssh_config = {};
  std::function<void(const Result&)> ended = {};  // called with each result here, as soon as there is one
};

// The policy that a person's command runs under: the file that is named, else the site's, else the defaults.
Policy policy_for(const std::string& config);

// How many checks are meant; what examine() throws where none is.
std::size_t num_chosen(const RunRequest& request);

// When all that is meant must be done: a minute, or as long as the deadlines of checks that cannot run side by side add
// up to.
double patience_s(const RunRequest& request);

// A report a node. Throws Error("check.none", user) where no check is meant, and what load_policy, load_extension and
// run_remote throw.
std::vector<Report> examine(const RunRequest& request);

}  // namespace ms::health
