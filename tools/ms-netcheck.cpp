// ms-netcheck: tests the network of a job and locates faulty nodes and links. A table: the commands are in
// libms/ops/net/commands.
#include <fmt/format.h>

#include <cctype>

#include "base/cli.h"
#include "base/tool_exits.h"
#include "net/commands/commands.h"
#include "net/judge/inspector_judge.h"
#include "net/judge/nccl_choices.h"
#include "net/measure/counters.h"
#include "net/report/report.h"
#include "slurm/launch.h"

namespace {

using namespace ms;  // NOLINT: a main

std::vector<std::pair<std::string, std::string>> code_items() {
  std::vector<std::pair<std::string, std::string>> items;
  for (const net::Code& code : net::codes()) items.emplace_back(code.code, code.summary);
  return items;
}
std::vector<std::pair<std::string, std::string>> choice_items() {
  std::vector<std::pair<std::string, std::string>> items;
  for (const auto* codes : {&net::nccl_choice_codes(), &net::inspector_codes()})
    for (const net::NcclChoiceCode& code : *codes) items.emplace_back(code.code, code.summary);
  return items;
}
std::vector<std::pair<std::string, std::string>> counter_items() {
  std::vector<std::pair<std::string, std::string>> items;
  for (const net::CounterRule& rule : net::counter_rules()) {
    items.emplace_back(
        rule.name,
        fmt::format("{}{}; {} if {}.", static_cast<char>(std::toupper(rule.meaning[0])), rule.meaning.substr(1),
                    to_string(rule.severity),
                    rule.per_hour == 0 ? "it grows at all" : fmt::format("more than {:.0f} an hour", rule.per_hour)));
  }
  return items;
}

// Made in main(): options that commands share are constants of other files, which are not set before it.
Tool tool() {
  return {.name = "ms-netcheck",
          .summary = "test the network of a job and locate faulty nodes and links",
          .commands = {net::pairs_command(), net::locate_command(), net::ecmp_command(), net::collectives_command(),
                       net::counters_command(), net::config_command(), net::nccl_log_command(),
                       net::inspector_command(), net::agent_command()},
          .description =
              "Run ms-netcheck in a job of its own, because it loads the network that it measures. Before it starts, "
              "it prints how long it will take and how much each node will send at most. Start the job with --no-kill; "
              "otherwise Slurm ends it when a node fails.",
          .examples = {{"salloc -N 8 ms-netcheck locate", "Locate faults among eight nodes:"},
                       {"ms-netcheck locate --nodes n[1-8] --launch 'ssh {node} {agent}' --json",
                        "The same without Slurm:"}},
          .see_also = {"ms-diag(1)"},
          .exit_status = exits_of("ms-netcheck"),
          .failure_status = net::kNothingMeasured,
          .sections = {{"FINDINGS", code_items()}, {"NCCL'S CHOICES", choice_items()}, {"COUNTERS", counter_items()}},
          .before_error = slurm::let_rank_0_report_first};
}

}  // namespace

int main(int argc, char** argv) { return run_tool("ms-netcheck", tool, argc, argv); }
