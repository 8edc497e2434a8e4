// A view of four nodes, the planner's memory and a policy, for tests of plans.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "loan/plan.h"

namespace ms::loan {

class LoanPlan : public testing::Test {
 protected:
  LoanPlan() {
    policy_.loan = {.poll_s = 10,
                    .grace_s = 70,
                    .lend_interval_s = 100,
                    .reserve_quantile = 1,
                    .reserve_window_s = 0,
                    .headroom_percent = 0};
    view_.kill_wait_s = 6;
    policy_.slurm.end_s = 4;  // leaves jobs 50 s to save
    view_.now_s = 1000;
    for (const char* name : {"n1", "n2", "n3", "n4"}) view_.nodes.push_back({.name = name, .idle = true});
  }
  // A job of the loan partition on these nodes of n1, n2, ...
  void run(std::uint32_t id, const std::vector<std::size_t>& nodes) {
    for (const std::size_t node : nodes) {
      view_.nodes[node - 1].idle = false;
      view_.nodes[node - 1].jobs.push_back(static_cast<int>(view_.jobs.size()));
    }
    view_.jobs.push_back({.id = id, .nodes = static_cast<int>(nodes.size())});
  }
  void lend(const std::vector<std::size_t>& nodes) {
    for (const std::size_t node : nodes) view_.nodes[node - 1].on_loan = true;
  }
  void grows(std::size_t job, std::vector<int> sizes) {
    view_.jobs[job].sizes = std::move(sizes);
    view_.jobs[job].may_grow = true;
  }
  Plan plan() {
    remember(memory_, view_, policy_);
    return make_plan(view_, memory_, policy_);
  }
  static std::vector<std::string> words(const Plan& plan) {
    std::vector<std::string> all;
    for (const Action& action : plan.actions) {
      all.push_back(
          fmt::format("{} {}", to_string(action.step), action.node.empty() ? std::to_string(action.job) : action.node));
    }
    return all;
  }

  Policy policy_;
  View view_;
  Memory memory_;
};

}  // namespace ms::loan
