// The commands of ms-netcheck that measure pairs of nodes, and the agent that they start on every node.
#include <fmt/format.h>

#include <cstdlib>
#include <iostream>

#include "base/clock.h"
#include "base/file.h"
#include "base/print.h"
#include "base/progress.h"
#include "base/text.h"
#include "net/agents/agent.h"
#include "net/agents/own_launch.h"
#include "net/commands/check.h"
#include "net/commands/commands.h"
#include "net/commands/extension.h"
#include "net/judge/scope.h"
#include "net/report/flows_report.h"
#include "net/report/report_html.h"
#include "net/report/report_json.h"

namespace ms::net {
namespace {

const Option kNodes{.name = "nodes", .value = "HOSTLIST", .doc = "Which nodes; without it all of the job."};
const Option kTransport{
    .name = "transport",
    .value = "tcp|mpi|verbs|nccl",
    .doc =
        "tcp; mpi: between processes, one of each node (inside a job srun starts them); nccl: between the GPUs of such "
        "processes, as training does; verbs: RDMA, by perftest's ib_write_lat and ib_write_bw.",
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
  std::vector<Option> all{kNodes,   kLaunch, kTransport, kGpu,     kDeadline, kInterface, kHcas,   kWait,       kPings,
                          kSeconds, kBytes,  kFlows,     kMaxRate, kTopology, kJson,      kNagios, kPrometheus, kHtml};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

CheckOptions check_options(const Args& args) {
  CheckOptions options;
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
  if (args.has("topology")) options.topology = read_topology(args.get("topology"));
  options.announce = [](const std::string& text) { print_err("ms-netcheck: {}\n", text); };
  return options;
}

AgentWorkersOptions workers_options(const Args& args) {
  AgentWorkersOptions options = agents_of(args);
  options.interface = args.get("interface");
  return options;
}

int report(const Args& args, const Checked& checked) {
  if (args.has("json")) {
    write_out(as_json(checked));
  } else if (args.has("nagios")) {
    write_out(as_nagios(checked));
  } else {
    write_out(as_text(checked));
  }
  if (args.has("prometheus")) write_file_atomic(args.get("prometheus"), as_prometheus(checked));
  if (args.has("html")) write_file_atomic(args.get("html"), as_html(checked));
  return nagios_status(checked);
}

// Runs the check; returns nullopt if this process is a rank that only serves the one that reports.
using Check = Checked (*)(Workers&, const CheckOptions&);
std::optional<Checked> by_transport(const Args& args, Check check, CheckOptions& options, bool by_groups) {
  const std::string transport = args.get("transport");
  if (by_groups && transport != "mpi")
    throw user_error("cli.value", "--by groups: times reductions of many ranks, so it takes --transport mpi");
  RanksRequest ranks = ranks_of(args);
  if (transport == "mpi" || transport == "nccl") {
    if (transport == "nccl") {
      options.announce = [announce = options.announce](const std::string& text) {
        announce(text + "; to open NCCL's communicators comes on top");
      };
    }
    if (std::getenv("SLURM_JOB_ID") != nullptr) become_launch(own_arguments(), nodes_of(args, "srun"));
    if (args.has("nodes") && std::getenv("SLURM_JOB_ID") == nullptr) {
      throw user_error("cli.value", "--nodes: outside of a Slurm job, the nodes are those of the launch",
                       "mpirun --host NODES");
    }
    ranks.deadline_s += 4 * options.spec.seconds;
    return load_extension().ranks(ranks, [&](LaunchedWorkers& workers) {
      if (!by_groups) return check(workers, options);
      return locate_by_groups(workers, options, [&](const auto& groups) { return workers.time_groups(groups); });
    });
  }
  if (transport != "tcp" && transport != "verbs")
    throw user_error("cli.value", fmt::format("--transport {}: tcp, mpi, verbs or nccl", transport));
  AgentWorkersOptions agents = workers_options(args);
  agents.rdma = options.spec.rdma = transport == "verbs";
  agents.hcas = args.get("hcas");
  AgentWorkers workers(agents);
  return check(workers, options);
}

int run_check(const Args& args, Check check, const std::function<void(CheckOptions&)>& set, bool by_groups = false) {
  if (args.has("json") && args.has("nagios"))
    throw user_error("run.form", "--json and --nagios are two forms of one result: give one");
  CheckOptions options = check_options(args);
  options.spec.flows = static_cast<int>(args.get_int("flows", 1, 64));
  options.spec.pings = static_cast<int>(args.get_int("pings", 1, 1000000));
  set(options);
  SystemClock clock;
  std::optional<Progress> progress;
  options.progress = [&](int done, int of) {
    if (!progress) progress.emplace("netcheck", of, "rounds", clock);
    progress->update(done);
  };
  const std::optional<Checked> checked = by_transport(args, check, options, by_groups);
  if (progress) progress->finish();
  return checked ? report(args, *checked) : 0;
}

int run_pairs_command(const Args& args) {
  const Cover cover = parse_cover(args.get("schedule"));
  return run_check(args, check_pairs, [&](CheckOptions& options) {
    options.cover = cover;
    options.spec.both_at_once = !args.has("one-way");
  });
}

int run_locate_command(const Args& args) {
  const std::string by = args.get("by");
  if (by != "pairs" && by != "groups") throw user_error("cli.value", fmt::format("--by {}: pairs or groups", by));
  return run_check(
      args, locate,
      [&](CheckOptions& options) {
        options.thresholds.slow = args.get_double("slow");
        if (!(options.thresholds.slow > 0 && options.thresholds.slow < 1))
          throw user_error("cli.value", "--slow: a share between 0 and 1");
      },
      by == "groups");
}

int run_ecmp_command(const Args& args) {
  if (const std::string transport = args.get("transport"); transport != "tcp") {
    write_out(not_run("ecmp", transport + ": flows choose their source ports over TCP only", args.has("json")));
    return kNothingMeasured;
  }
  const CheckOptions options = check_options(args);
  const FlowOptions flows{.flows = static_cast<int>(args.get_int("flows", 2, 64)),
                          .rolls = static_cast<int>(args.get_int("rolls", 1, 100)),
                          .repeats = 2};
  AgentWorkers workers(workers_options(args));
  const FlowsChecked checked = check_flows(workers, options, flows);
  write_out(args.has("json") ? as_json(checked) : as_text(checked));
  return worst_status(findings(checked));
}

int run_agent_command(const Args& args) {
  std::string line;
  if (!std::getline(std::cin, line)) {
    throw user_error("net.invitation", "an agent is told whom to serve on standard input",
                     "agents are started by 'ms-netcheck pairs' and the like");
  }
  run_agent({.invitation = read_invitation(line), .root = args.get("root")});
  return 0;
}

}  // namespace

Command pairs_command() {
  return {.name = "pairs",
          .summary = "latency, bandwidth and losses of pairs of nodes",
          .options = with({{.name = "schedule",
                            .value = "auto|quick|ring|all|distance",
                            .doc = "auto, quick (every node once), ring (everybody sends to the d-th behind it), all "
                                   "pairs, or distance (all, below the same switch first).",
                            .default_text = "auto"},
                           {.name = "one-way", .doc = "One direction after the other, not both at once."}}),
          .run = run_pairs_command,
          .description =
              "Tests pairs of nodes in rounds in which no node is in two pairs, and prints what every way "
              "carries. Judges nobody: see locate."};
}

Command locate_command() {
  return {.name = "locate",
          .summary = "name the nodes, switches, links and directions that are at fault",
          .options = with({{.name = "slow",
                            .value = "SHARE",
                            .doc = "Below this share of what is normal a way is slow.",
                            .default_text = "0.7"},
                           {.name = "by",
                            .value = "pairs|groups",
                            .doc = "pairs, or groups: over MPI, halves the ranks until what makes a reduction slow is "
                                   "found, in about 2 k log2(n / k) tests for k slow nodes of n.",
                            .default_text = "pairs"}}),
          .run = run_locate_command,
          .description =
              "Tests all pairs of up to 32 nodes, three partners of every node of more; then once more what looked "
              "bad, and its two ends with nodes that are good. A node is at fault if most of its ways are; a switch, "
              "if all ways out of it are and none below it; what is left is a link, or one direction of it."};
}

Command ecmp_command() {
  return {
      .name = "ecmp",
      .summary = "do flows share paths that they should not, or take a slow one",
      .options = {kNodes,
                  kLaunch,
                  {.name = "transport", .value = "WHAT", .doc = "tcp; others count as not run.", .default_text = "tcp"},
                  kInterface,
                  kWait,
                  kSeconds,
                  kBytes,
                  kMaxRate,
                  kTopology,
                  kJson,
                  {.name = "flows", .value = "N", .doc = "Connections of a pair.", .default_text = "8"},
                  {.name = "rolls", .value = "N", .doc = "How often with other source ports.", .default_text = "3"}},
      .run = run_ecmp_command,
      .description =
          "Connects neighbours several times, from source ports of its own choice, and lets each flow send alone, "
          "then all of a pair, then all pairs. Flows that are slow alone take a slow path; flows that are "
          "slow only together share one; pairs that are slow only beside others share a limit behind their switch."};
}

Command agent_command() {
  return {.name = "agent",
          .summary = "serve a check (started by the other commands on every node)",
          .options = {kRoot},
          .run = run_agent_command,
          .description =
              "Reads an invitation on standard input, introduces itself to the coordinator, and ends with "
              "it. All connections prove the knowledge of a secret first."};
}

}  // namespace ms::net
