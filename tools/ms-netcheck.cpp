// ms-netcheck: is the fabric sound, and if not, which node or link is at fault. Tables, then calls: the thinking is in
// libms/net.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <map>

#include "base/cli.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/progress.h"
#include "base/text.h"
#include "net/agents/agent.h"
#include "net/agents/agent_workers.h"
#include "net/commands/check.h"
#include "net/commands/commands.h"
#include "net/judge/scope.h"
#include "net/measure/counters.h"
#include "net/measure/fabric_config.h"
#include "net/ranks/own_launch.h"
#include "net/ranks/rank_workers.h"
#include "net/report/flows_report.h"
#include "net/report/report_html.h"
#include "net/report/report_json.h"
#include "train/config.h"

namespace {

using namespace ms;  // NOLINT: a main

constexpr int kUnknown = 3;

const Option kNodes{.name = "nodes", .value = "HOSTLIST", .doc = "Which nodes; without it all of the job."};
const Option kTransport{
    .name = "transport",
    .value = "WHAT",
    .doc =
        "tcp; mpi: between processes, one of each node (inside a job srun starts them); verbs: RDMA, by "
        "perftest's ib_write_lat and ib_write_bw; nccl counts as not run.",
    .default_text = "tcp"};
const Option kInterface{
    .name = "interface", .value = "PREFIX", .doc = "Interfaces to use; without it those that lead to the coordinator."};
const Option kSeconds{
    .name = "seconds", .value = "SECONDS", .doc = "Of each stream of bytes.", .default_text = "400ms"};
const Option kBytes{
    .name = "bytes", .value = "SIZE", .doc = "At most this much in each stream.", .default_text = "1GiB"};
const Option kPings{.name = "pings",
                    .value = "N",
                    .doc = "Round trips of each pair; half a second ends them, too.",
                    .default_text = "200"};
const Option kHcas{.name = "hcas",
                   .value = "LIST",
                   .doc = "Adapters for verbs, in the form of NCCL_IB_HCA; the first active port of them is used."};
const Option kFlows{.name = "flows", .value = "N", .doc = "Connections a direction.", .default_text = "1"};
const Option kMaxRate{.name = "max-rate",
                      .value = "GBITS",
                      .doc = "At most so many Gbit/s a direction; 0 is as fast as it goes.",
                      .default_text = "0"};
const Option kTopology{.name = "topology",
                       .value = "FILE",
                       .doc = "Which nodes are below which switch: a topology.conf, or the word slurm."};
const Option kNagios{.name = "nagios", .doc = "One line for Nagios."};
const Option kPrometheus{.name = "prometheus", .value = "FILE", .doc = "Also writes this for the textfile collector."};
const Option kHtml{.name = "html", .value = "FILE", .doc = "Also writes a page with heat maps."};

std::vector<Option> with(std::vector<Option> more) {
  std::vector<Option> all{kNodes, net::kLaunch, kTransport, kInterface, kHcas,      net::kWait, kPings,      kSeconds,
                          kBytes, kFlows,       kMaxRate,   kTopology,  net::kJson, kNagios,    kPrometheus, kHtml};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

net::CheckOptions check_options(const Args& args) {
  net::CheckOptions options;
  options.spec.seconds = args.get_seconds("seconds");
  if (options.spec.seconds <= 0 || options.spec.seconds > 60)
    throw user_error("cli.value", "--seconds: more than none, and at most a minute");
  const std::optional<std::int64_t> bytes = parse_size_bytes(args.get("bytes"));
  if (!bytes || *bytes < (1 << 16) || *bytes > (std::int64_t{1} << 40))
    throw user_error("cli.value", fmt::format("--bytes {}: a size from 64KiB to 1TiB", args.get("bytes")));
  options.spec.bytes = *bytes;
  options.spec.max_gbps = args.get_double("max-rate");
  if (!(options.spec.max_gbps >= 0 && options.spec.max_gbps <= 1e5))
    throw user_error("cli.value", "--max-rate: 0 to 100000");
  if (args.has("topology")) options.topology = net::read_topology(args.get("topology"));
  options.announce = [](const std::string& text) { fmt::print(stderr, "ms-netcheck: {}\n", text); };
  return options;
}

net::AgentWorkersOptions workers_options(const Args& args) {
  net::AgentWorkersOptions options = net::agents_of(args);
  options.interface = args.get("interface");
  return options;
}

int report(const Args& args, const net::Checked& checked) {
  if (args.has("json")) {
    fmt::print("{}", net::as_json(checked));
  } else if (args.has("nagios")) {
    fmt::print("{}", net::as_nagios(checked));
  } else {
    fmt::print("{}", net::as_text(checked));
  }
  if (args.has("prometheus")) write_file_atomic(args.get("prometheus"), net::as_prometheus(checked));
  if (args.has("html")) write_file_atomic(args.get("html"), net::as_html(checked));
  return net::nagios_status(checked);
}

// Nothing where this process is a rank that only serves the one that reports.
using Check = net::Checked (*)(net::Workers&, const net::CheckOptions&);
std::optional<net::Checked> by_transport(const Args& args, Check check, net::CheckOptions& options, bool by_groups) {
  const std::string transport = args.get("transport");
  if (by_groups && transport != "mpi")
    throw user_error("cli.value", "--by groups: times reductions of many ranks, so it takes --transport mpi");
  if (transport == "nccl") {
    net::Checked checked;
    checked.command = "pairs";
    checked.not_run.emplace_back("nccl: not built yet");
    return checked;
  }
  if (transport == "mpi") {
    if (std::getenv("SLURM_JOB_ID") != nullptr) net::become_launch(net::own_arguments(), net::nodes_of(args, "srun"));
    if (args.has("nodes") && std::getenv("SLURM_JOB_ID") == nullptr) {
      throw user_error("cli.value", "--nodes: outside of a Slurm job, the nodes are those of the launch",
                       "mpirun --host NODES");
    }
    return net::check_ranks({.transport = transport, .ranks = 0, .deadline_s = 60 + 4 * options.spec.seconds},
                            [&](net::RankWorkers& workers) {
                              if (!by_groups) return check(workers, options);
                              return net::locate_by_groups(
                                  workers, options, [&](const auto& groups) { return workers.time_groups(groups); });
                            });
  }
  if (transport != "tcp" && transport != "verbs")
    throw user_error("cli.value", fmt::format("--transport {}: tcp, mpi, verbs or nccl", transport));
  net::AgentWorkersOptions agents = workers_options(args);
  agents.rdma = options.spec.rdma = transport == "verbs";
  agents.hcas = args.get("hcas");
  net::AgentWorkers workers(agents);
  return check(workers, options);
}

int run_check(const Args& args, Check check, const std::function<void(net::CheckOptions&)>& set,
              bool by_groups = false) {
  if (args.has("json") && args.has("nagios"))
    throw user_error("run.form", "--json and --nagios are two forms of one result: give one");
  net::CheckOptions options = check_options(args);
  options.spec.flows = static_cast<int>(args.get_int("flows", 1, 64));
  options.spec.pings = static_cast<int>(args.get_int("pings", 1, 1000000));
  set(options);
  SystemClock clock;
  std::optional<Progress> progress;
  options.progress = [&](int done, int of) {
    if (!progress) progress.emplace("netcheck", of, "rounds", clock);
    progress->update(done);
  };
  const std::optional<net::Checked> checked = by_transport(args, check, options, by_groups);
  if (progress) progress->finish();
  return checked ? report(args, *checked) : 0;
}

int pairs(const Args& args) {
  const net::Cover cover = net::parse_cover(args.get("schedule"));
  return run_check(args, net::check_pairs, [&](net::CheckOptions& options) {
    options.cover = cover;
    options.spec.both_at_once = !args.has("one-way");
  });
}

int locate(const Args& args) {
  const std::string by = args.get("by");
  if (by != "pairs" && by != "groups") throw user_error("cli.value", fmt::format("--by {}: pairs or groups", by));
  return run_check(
      args, net::locate,
      [&](net::CheckOptions& options) {
        options.thresholds.slow = args.get_double("slow");
        if (!(options.thresholds.slow > 0 && options.thresholds.slow < 1))
          throw user_error("cli.value", "--slow: a share between 0 and 1");
      },
      by == "groups");
}

// Of a training configuration that is named.
std::optional<mesh::Mesh> mesh_of(const Args& args) {
  if (!args.has("config")) return std::nullopt;
  const mesh::MeshConfig mesh = train::load(args.get("config"), args.list("set")).settings.mesh;
  return mesh::Mesh{.dp = static_cast<int>(mesh.dp), .pp = static_cast<int>(mesh.pp), .tp = static_cast<int>(mesh.tp)};
}

int ecmp(const Args& args) {
  if (const std::string transport = args.get("transport"); transport != "tcp") {
    fmt::print("{}",
               net::not_run("ecmp", transport + ": flows choose their source ports over TCP only", args.has("json")));
    return kUnknown;
  }
  const net::CheckOptions options = check_options(args);
  const net::FlowOptions flows{.flows = static_cast<int>(args.get_int("flows", 2, 64)),
                               .rolls = static_cast<int>(args.get_int("rolls", 1, 100)),
                               .repeats = 2};
  net::AgentWorkers workers(workers_options(args));
  const net::FlowsChecked checked = net::check_flows(workers, options, flows);
  fmt::print("{}", args.has("json") ? net::as_json(checked) : net::as_text(checked));
  return net::worst_status(net::findings(checked));
}

int agent(const Args& args) {
  std::string line;
  if (!std::getline(std::cin, line)) {
    throw user_error("net.invitation", "an agent is told whom to serve on standard input",
                     "agents are started by 'ms-netcheck pairs' and the like");
  }
  net::run_agent({.invitation = net::read_invitation(line), .root = args.get("root")});
  return 0;
}

std::vector<std::pair<std::string, std::string>> code_items() {
  std::vector<std::pair<std::string, std::string>> items;
  for (const net::Code& code : net::codes()) items.emplace_back(code.code, code.summary);
  return items;
}
std::vector<std::pair<std::string, std::string>> counter_items() {
  std::vector<std::pair<std::string, std::string>> items;
  for (const net::CounterRule& rule : net::counter_rules()) {
    items.emplace_back(
        rule.name,
        fmt::format("{}{}; {} if {}.", static_cast<char>(std::toupper(rule.meaning[0])), rule.meaning.substr(1),
                    to_string(rule.severity),
                    rule.per_hour == 0 ? "it grows at all" : fmt::format("more than {:g} an hour", rule.per_hour)));
  }
  return items;
}

const Tool kTool{
    .name = "ms-netcheck",
    .summary = "is the fabric sound, and if not, which node or link is at fault",
    .commands =
        {{.name = "pairs",
          .summary = "latency, bandwidth and losses of pairs of nodes",
          .options = with({{.name = "schedule",
                            .value = "WHICH",
                            .doc = "auto, quick (every node once), ring (everybody sends to the d-th behind it), all "
                                   "pairs, or distance (all, below the same switch first).",
                            .default_text = "auto"},
                           {.name = "one-way", .doc = "One direction after the other, not both at once."}}),
          .run = pairs,
          .description = "Tests pairs of nodes in rounds in which no node is in two pairs, and prints what every way "
                         "carries. Judges nobody: see locate."},
         {.name = "locate",
          .summary = "name the nodes, switches, links and directions that are at fault",
          .options = with({{.name = "slow",
                            .value = "SHARE",
                            .doc = "Below this share of what is normal a way is slow.",
                            .default_text = "0.7"},
                           {.name = "by",
                            .value = "WHAT",
                            .doc = "pairs, or groups: over MPI, halves the ranks until what makes a reduction slow is "
                                   "found, in about 2 k log2(n / k) tests for k slow nodes of n.",
                            .default_text = "pairs"}}),
          .run = locate,
          .description =
              "Tests all pairs of up to 32 nodes, three partners of every node of more; then once more what looked "
              "bad, and its two ends with nodes that are good. A node is at fault if most of its ways are; a switch, "
              "if all ways out of it are and none below it; what is left is a link, or one direction of it."},
         {.name = "ecmp",
          .summary = "do flows share paths that they should not, or take a slow one",
          .options =
              {kNodes,
               net::kLaunch,
               {.name = "transport", .value = "WHAT", .doc = "tcp; others count as not run.", .default_text = "tcp"},
               kInterface,
               net::kWait,
               kSeconds,
               kBytes,
               kMaxRate,
               kTopology,
               net::kJson,
               {.name = "flows", .value = "N", .doc = "Connections of a pair.", .default_text = "8"},
               {.name = "rolls", .value = "N", .doc = "How often with other source ports.", .default_text = "3"}},
          .run = ecmp,
          .description =
              "Connects neighbours several times, from source ports of its own choice, and lets each flow send alone, "
              "then all of a pair, then all pairs. Flows that are slow alone take a slow path; flows that are slow "
              "only "
              "together share one; pairs that are slow only beside others share a limit behind their switch."},
         net::collectives_command(mesh_of),
         net::counters_command(),
         net::config_command(),
         {.name = "agent",
          .summary = "serve a check (started by the other commands on every node)",
          .options = {net::kRoot},
          .run = agent,
          .description = "Reads an invitation on standard input, introduces itself to the coordinator, and ends with "
                         "it. All connections prove the knowledge of a secret first."}},
    .description =
        "Runs inside a job of its own: what it measures it also loads. Before it starts it says for how "
        "long, and how much every node will send at most. A node that dies ends a job unless that was started with "
        "--no-kill.",
    .examples = {{.command = "salloc -N 8 ms-netcheck locate", .doc = "Find what is wrong with eight nodes:"},
                 {.command = "ms-netcheck locate --nodes n[1-8] --launch 'ssh {node} {agent}' --json",
                  .doc = "The same without Slurm:"}},
    .see_also = {"ms-diag(1)"},
    .exit_status = {{0, "Nothing was found."},
                    {1, "Only warnings: an interface lost its carrier."},
                    {2, "A node, switch, link or direction is at fault."},
                    {3, "Nothing could be measured, or the command is wrong."}},
    .failure_status = kUnknown,
    .sections = {{.title = "FINDINGS", .items = code_items()}, {.title = "COUNTERS", .items = counter_items()}}};

}  // namespace

int main(int argc, char** argv) { return run_tool(kTool, argc, argv); }
