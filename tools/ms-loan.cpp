// ms-loan: lends idle inference nodes to training. A table: the commands are in libms/ops/loan.
#include <string>
#include <utility>
#include <vector>

#include "base/cli.h"
#include "loan/commands.h"
#include "loan/policy.h"
#include "loan/schedulers.h"

namespace {

using namespace ms;  // NOLINT: a main

std::vector<std::pair<std::string, std::string>> scheduler_items() {
  std::vector<std::pair<std::string, std::string>> items;
  for (const loan::Scheduler& row : loan::schedulers()) items.emplace_back(row.name, std::string(row.doc) + ".");
  return items;
}

// Made in main(): options that commands share are constants of other files, which are not set before it.
Tool tool() {
  return {.name = "ms-loan",
          .summary = "lend idle inference nodes to training",
          .commands = {loan::observe_command(), loan::act_command(), loan::explain_command(), loan::simulate_command()},
          .description =
              "Inference needs few of its nodes at night, while training jobs wait. ms-loan lends idle nodes to "
              "training and reclaims them when demand rises, with as few preemptions as possible. Elastic jobs get "
              "extra workers where they save the most time.",
          .examples = {{"ms-loan simulate --jobs jobs.csv.gz --demand demand.csv --policy ms-loan.toml",
                        "Simulate loans on a trace:"},
                       {"ms-loan observe --policy ms-loan.toml", "Print what act would do now:"},
                       {"ms-loan explain 4711 --policy ms-loan.toml", "Find out why a job was preempted:"}},
          .see_also = {"ms-loan.toml(5)", "ms-driver(1)"},
          .extra_pages = {{.option = "--man-policy", .text = loan::policy_page},
                          {.option = "--sample-policy", .text = loan::sample_policy}},
          .sections = {{"SCHEDULERS", scheduler_items()}}};
}

}  // namespace

int main(int argc, char** argv) { return run_tool("ms-loan", tool, argc, argv); }
