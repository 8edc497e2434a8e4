// ms-netcheck: tests the network of a job and locates faulty nodes and links. A table: the commands are in
// libms/ops/net/commands.
#include <fmt/format.h>

#include <cctype>

#include "base/cli.h"
#include "base/man.h"
#include "base/tool_exits.h"
#include "clos/fabric.h"
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

std::vector<std::pair<std::string, std::string>> plan_items() {
  return {
      {"Describe the fabric",
       "Copy the nearest file of configs/fabrics and correct it, see ms-fabric(5). Then plan the job:\n"
       "    ms-netcheck plan fabric.toml --dp 16 --pp 4 --tp 8"},
      {"Read the first table",
       "With 64 hosts, 32 under a set of leaf switches:\n"
       "    collective  channels  flows  via spines  colliding  slowest, median\n"
       "    dp                32    512           0          -          100.0 %\n"
       "    pp               384    384         128     38.2 %           33.3 %\n"
       "Rings of dp stay under their leaf switches. 128 transfers of pp pass the spines, 16 on 32 uplinks of each leaf "
       "switch. 38 % of them share an uplink. In half of the starts, three or more share one, and the slowest transfer "
       "has a third of its rate or less."},
      {"Choose a change",
       "The second table forecasts the same job after each change:\n"
       "    change                  colliding  slowest, median\n"
       "    NICs of 2 x 200 Gbit/s     25.8 %           50.0 %\n"
       "    4 queue pairs              13.4 %           57.1 %\n"
       "    16 queue pairs              0.7 %           94.1 %\n"
       "    adaptive routing                -          100.0 %\n"
       "Two flows of 200 Gbit/s fit an uplink of 400. More queue pairs spread a transfer over more uplinks, and cost "
       "NIC memory and latency. Every flow of a full leaf switch needs an uplink, so at 512 hosts and 16 stages even "
       "16 "
       "queue pairs leave the slowest transfer 52 % of its rate; only adaptive routing removes collisions there."},
      {"Weigh it", "How much of a step that is: ms-train simulate CONFIG --cluster CLUSTER --fabric fabric.toml."},
      {"Set and check it",
       "Export the variables in the job script, change switches and NICs, enter the new values in the file, and "
       "compare the nodes with it:\n"
       "    ms-netcheck config --nodes n[1-64] --fabric fabric.toml"}};
}

std::string fabric_manual() {
  clos::Fabric fabric;
  ConfigSchema schema;
  clos::bind(schema, fabric);
  return man::config_page(
      {.name = "ms-fabric",
       .summary = "description of the network between hosts",
       .description =
           "Describes a RoCE network for ms-netcheck plan and ms-train simulate --fabric: a Clos network of leaf and "
           "spine switches. The defaults are hosts with eight 400 Gbit/s NICs under 64 x 400 Gbit/s switches, half of "
           "whose ports are uplinks. --set-fabric SECTION.KEY=VALUE overrides the file. NICs of 200 Gbit/s under "
           "uplinks of 400 Gbit/s, as in the MegaScale paper, are port_rate = 200 and hosts = 64.",
       .see_also = {"ms-netcheck(1)", "ms-train(1)"}},
      schema.reference());
}

// Made in main(): options that commands share are constants of other files, which are not set before it.
Tool tool() {
  return {.name = "ms-netcheck",
          .summary = "test the network of a job and locate faulty nodes and links",
          .commands = {net::pairs_command(), net::locate_command(), net::ecmp_command(), net::collectives_command(),
                       net::counters_command(), net::config_command(), net::plan_command(), net::nccl_log_command(),
                       net::inspector_command(), net::agent_command()},
          .description =
              "Run ms-netcheck in a job of its own, because it loads the network that it measures. Before it starts, "
              "it prints how long it will take and how much each node will send at most. Start the job with --no-kill; "
              "otherwise Slurm ends it when a node fails.",
          .examples = {{"salloc -N 8 ms-netcheck locate", "Locate faults among eight nodes:"},
                       {"ms-netcheck locate --nodes n[1-8] --launch 'ssh {node} {agent}' --json",
                        "The same without Slurm:"},
                       {"ms-netcheck plan configs/fabrics/h100-rails-400g.toml --dp 16 --pp 4 --tp 8",
                        "Before the job, find what collides in the fabric and what would help:"}},
          .see_also = {"ms-fabric(5)", "ms-diag(1)"},
          .exit_status = exits_of("ms-netcheck"),
          .failure_status = net::kNothingMeasured,
          .extra_pages = {{"--man-fabric", fabric_manual}},
          .sections = {{"FINDINGS", code_items()},
                       {"NCCL'S CHOICES", choice_items()},
                       {"COUNTERS", counter_items()},
                       {"PLANNING A FABRIC", plan_items()}},
          .before_error = slurm::let_rank_0_report_first};
}

}  // namespace

int main(int argc, char** argv) { return run_tool("ms-netcheck", tool, argc, argv); }
