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
#include "net/report/report.h"

namespace ms::net {
namespace {

const Option kNodes{"nodes", "HOSTLIST", "Nodes to test (default: all nodes of the job)."};
const Option kTransport{
    "transport", "tcp|mpi|verbs|nccl",
    "tcp: between the agents. mpi: between processes, one per node, which srun starts inside a job. nccl: between the "
    "GPUs of such processes, as in training. verbs: RDMA, with perftest's ib_write_lat and ib_write_bw.",
    "tcp"};
const Option kInterface{"interface", "PREFIX", "Interfaces to use (default: those with a route to the coordinator)."};
const Option kSeconds{"seconds", "TIME", "Duration of each stream.", "400ms"};
const Option kBytes{"bytes", "SIZE", "Maximum size of each stream.", "1GiB"};
const Option kPings{"pings", "N", "Maximum number of round trips per pair, within half a second.", "200"};
const Option kHcas{"hcas", "LIST", "Adapters for verbs, in the syntax of NCCL_IB_HCA. The first active port is used."};
const Option kFlows{"flows", "N", "Connections per direction.", "1"};
const Option kMaxRate{"max-rate", "GBITS", "Maximum rate per direction in Gbit/s. 0: unlimited.", "0"};
const Option kTopology{"topology", "FILE", "Switch topology: a topology.conf or topology.yaml, or slurm to ask Slurm."};
const Option kNagios{"nagios", "", "Print one line for Nagios."};
const Option kPrometheus{"prometheus", "FILE", "Also write FILE for the textfile collector."};
const Option kHtml{"html", "FILE", "Also write FILE, an HTML page with heat maps."};

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
    throw user_error("net.invitation", "an agent reads its coordinator's address from standard input",
                     "agents are started by 'ms-netcheck pairs' and the like");
  }
  run_agent({.invitation = read_invitation(line), .root = args.get("root")});
  return 0;
}

}  // namespace

Command pairs_command() {
  return {.name = "pairs",
          .summary = "measure latency, bandwidth and loss between pairs of nodes",
          .options = with({{"schedule", "auto|quick|ring|all|distance",
                            "Pairs to test. quick: each node once. ring: each node sends to every other; in round d, "
                            "to the node d places after it. all: all pairs. distance: all pairs, those below the same "
                            "switch first. auto: all for up to 64 nodes, else quick.",
                            "auto"},
                           {"one-way", "", "Test one direction after the other instead of both at once."}}),
          .run = run_pairs_command,
          .description =
              "Tests pairs of nodes in rounds, with each node in at most one pair per round, and prints the results "
              "per direction. It does not look for causes; see locate."};
}

Command locate_command() {
  return {
      .name = "locate",
      .summary = "locate faulty nodes, switches, links and directions",
      .options = with({{"slow", "SHARE", "Treat a path as slow below this share of the normal rate.", "0.7"},
                       {"by", "pairs|groups",
                        "pairs: test pairs of nodes. groups: bisect the ranks over MPI to find those that make a "
                        "reduction slow. This takes about 2 k log2(n / k) tests for k slow nodes of n.",
                        "pairs"}}),
      .run = run_locate_command,
      .description =
          "Tests all pairs of up to 32 nodes, or three partners per node for more nodes. Then it repeats bad pairs "
          "and tests both ends against good nodes. A node is at fault if most of its paths are bad. A switch is at "
          "fault if all paths out of it are bad and the paths below it are good. Other faults belong to a link, or "
          "to one direction of a link.\n\nlocate also measures how long the sender and the receiver of a stream "
          "waited for a CPU. If other paths at such waits are often slow as well, a slow path is no evidence: locate "
          "repeats the test, and prints a note instead of a finding if that does not decide."};
}

Command ecmp_command() {
  return {
      .name = "ecmp",
      .summary = "find flows that collide on a path or use a slow path",
      .options = {kNodes,
                  kLaunch,
                  {"transport", "WHAT", "Only tcp is tested; other transports are reported as not run.", "tcp"},
                  kInterface,
                  kWait,
                  kSeconds,
                  kBytes,
                  kMaxRate,
                  kTopology,
                  kJson,
                  {"flows", "N", "Connections per pair.", "8"},
                  {"rolls", "N", "Repetitions with other source ports.", "3"}},
      .run = run_ecmp_command,
      .description =
          "Opens several connections between neighbours, with chosen source ports, and sends on each flow alone, then "
          "on all flows of a pair, then on all pairs. Flows that are slow alone use a slow path. Flows that are slow "
          "only together share a path. Pairs that are slow only together share a bottleneck behind their switch."};
}

Command agent_command() {
  return {.name = "agent",
          .summary = "serve a check on a node (started by the other commands)",
          .options = {kRoot},
          .run = run_agent_command,
          .description =
              "Reads an invitation on standard input, connects to the coordinator, and exits when the coordinator "
              "exits. All connections are authenticated with a shared secret."};
}

}  // namespace ms::net
