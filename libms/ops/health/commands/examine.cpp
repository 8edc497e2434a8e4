#include "health/commands/examine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/clock.h"
#include "base/print.h"
#include "health/act/load_policy.h"
#include "health/act/notes.h"
#include "health/act/state.h"
#include "health/checks/registry.h"
#include "health/commands/extension.h"
#include "health/commands/remote.h"
#include "health/run/runner.h"
#include "slurm/job_env.h"

namespace ms::health {
namespace {

// Level 1 loads no library.
std::vector<Check> chosen(const RunRequest& request) {
  std::vector<Check> checks = request.level == 1 ? passive_checks() : all_checks();
  std::erase_if(checks,
                [&](const Check& check) { return check.level > request.level || !matches(request.only, check.code); });
  if (checks.empty()) {
    throw user_error(
        "check.none", fmt::format("no check of level {} is called '{}'", request.level, request.only),
        request.level == 3 ? "ms-diag list shows all" : "ms-diag list shows all and their levels; give --level 2 or 3");
  }
  return checks;
}

// A state that cannot be used is no reason not to look: counters have nothing to be compared with then.
void attempt_with_state(const std::function<void()>& use) {
  try {
    use();
  } catch (const Error& error) {
    print_err("ms-diag: warning: {}; the state of this node is not used\n", error.message());
  }
}
// Root's own state; of it, users see when the node was undrained.
State state_or_none(const Policy& policy, bool is_root) {
  State state;
  attempt_with_state([&] {
    if (!is_root) {
      state = published_undrain(policy.paths.notes);
    } else if (::access(policy.paths.state.c_str(), F_OK) == 0) {
      state = StateDirectory(policy.paths.state).load();
    }
  });
  return state;
}

Report examine_here(const RunRequest& request, const std::vector<Check>& checks) {
  const Policy policy = policy_for(request.config);
  RunOptions options{.deadline_s = patience_s(request), .asked = request.asked, .ended = request.ended};
  const bool is_root = ::geteuid() == 0;
  const State state = state_or_none(policy, is_root);
  options.before = state.counters;
  SystemClock clock;
  const double undrained_wall_s = since_undrain(state, Sysroot(policy.paths.sysroot), clock);
  options.not_before_wall_s = std::max(undrained_wall_s, request.since_wall_s);
  const double before_s = clock.now_s();
  Report report{.node = slurm::this_node(), .results = run_checks(checks, policy, options)};
  report.wall_s = clock.now_s() - before_s;
  report.at_wall_s = clock.wall_s();
  const bool has_state = is_root && ::access(policy.paths.state.c_str(), F_OK) == 0;
  if (has_state && request.level > 1 && report.outcome() != "unknown") {
    attempt_with_state([&] {
      StateDirectory(policy.paths.state).update([&](State& kept) { kept.last_active_wall_s = clock.wall_s(); });
    });
  }
  return report;
}

}  // namespace

Policy policy_for(const std::string& config) {
  if (!config.empty()) return load_policy(config);
  return ::access(kPolicyPath, F_OK) == 0 ? load_policy(kPolicyPath) : Policy{};
}

std::size_t num_chosen(const RunRequest& request) { return chosen(request).size(); }

double patience_s(const RunRequest& request) {
  constexpr double kLeast_s = 60;
  if (request.deadline_s > 0) return request.deadline_s;
  double patience_s = kLeast_s;
  for (const Resources resource : {kGpus, kBus, kDisk, kWire}) {
    double together_s = 0;
    for (const Check& check : chosen(request)) {
      if ((check.takes & resource) != 0) together_s += check.deadline_s + (check.soaks ? request.asked.soak_s : 0);
    }
    patience_s = std::max(patience_s, together_s);
  }
  return patience_s;
}

std::vector<Report> examine(const RunRequest& request) {
  const std::vector<Check> checks = chosen(request);  // first: what makes no sense is refused here, not on every node
  if (!request.nodes) return {examine_here(request, checks)};
  if (request.nodes->empty()) throw user_error("check.nodes", "the list of nodes is empty");
  return run_remote(*request.nodes, {.ssh_config = request.ssh_config,
                                     .config = request.config,
                                     .level = request.level,
                                     .only = request.only,
                                     .deadline_s = patience_s(request),
                                     .asked = request.asked,
                                     .since_wall_s = request.since_wall_s});
}

}  // namespace ms::health
