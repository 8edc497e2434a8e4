#include "net/commands/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "base/clock.h"
#include "base/file.h"
#include "base/print.h"
#include "base/text.h"
#include "net/agents/agent.h"
#include "net/agents/own_launch.h"
#include "net/commands/extension.h"
#include "net/judge/scope.h"
#include "net/measure/counters.h"
#include "net/measure/fabric_config.h"
#include "net/measure/facts_json.h"
#include "net/report/collectives_report.h"
#include "net/report/report.h"
#include "slurm/job_env.h"

namespace ms::net {
namespace {

const Option kNodesOrHere{"nodes", "HOSTLIST", "Nodes to check (default: this node)."};

const Option kFlap{"flap", "TIME", "Longest outage that a link should survive.", "5s"};

int print(const Args& args, const std::string& command, const std::vector<Finding>& found, const std::string& what,
          const std::vector<std::string>& not_run) {
  write_out(args.has("json") ? findings_json(command, found, not_run) : findings_text(found, what, not_run));
  return worst_status(found);
}

int collectives(const Args& args) {
  CollectivesRequest request{.ranks = ranks_of(args)};
  const std::string& transport = request.ranks.transport;
  if (transport != "mpi" && transport != "nccl" && transport != "threads")
    throw user_error("cli.value", fmt::format("--transport {}: mpi, nccl or threads", transport));
  if (args.has("ranks")) request.ranks.ranks = static_cast<int>(args.get_int("ranks", 1, 256));
  for (const std::string& name : split(args.get("what"), ',')) request.options.what.push_back(parse_collective(name));
  const auto size = [&](std::string_view option) {
    const std::optional<std::int64_t> bytes = parse_size_bytes(args.get(option));
    if (!bytes || *bytes < 4) throw user_error("cli.value", fmt::format("--{}: a size from 4 bytes on", option));
    return *bytes;
  };
  request.options.least_bytes = size("from");
  request.options.most_bytes = size("to");
  if (request.options.most_bytes < request.options.least_bytes)
    throw user_error("cli.value", "--to is less than --from");
  request.options.iterations = static_cast<int>(args.get_int("iterations", 1, 100000));
  if (args.has("config")) {
    const mesh::MeshConfig mesh = load_extension().mesh(args.get("config"), args.list("set"));
    request.mesh = mesh::make_mesh(mesh.dp, mesh.pp, mesh.tp, mesh.ranks(), mesh.ep, mesh.cp, mesh.expert_tp);
  }
  if (transport != "threads")
    become_launch(own_arguments(), args.has("nodes") ? nodes_of(args, "srun") : std::vector<std::string>{});
  const std::optional<std::vector<CollectiveRow>> rows = load_extension().collectives(request);
  if (!rows) return 0;
  const std::vector<Finding> found = judge_collectives(*rows, args.get_double("min-busbw"));
  if (args.has("json")) {
    write_out(collectives_json(*rows, found, {}));
  } else {
    write_out(collectives_text(*rows));
    for (const Finding& finding : found) print_out("{}\n", finding.str());
  }
  return worst_status(found);
}

// Asks all nodes for `what` every `interval_s` for `seconds`, at least once. Calls `look` with each answer.
Checked ask_all(const Args& args, const std::string& what, double seconds, double interval_s,
                const std::function<void(const std::string& node, const std::string& told)>& look) {
  AgentWorkersOptions options = agents_of(args);
  options.agent.insert(options.agent.end(), {"--root", args.get("root")});
  AgentWorkers workers(options);
  Checked checked;
  checked.command = what;
  checked.missing = workers.missing();
  checked.why_missing = workers.why_missing();
  SystemClock clock;
  const double end_s = clock.now_s() + seconds;
  while (true) {
    const std::vector<std::string> told = workers.ask(what);
    for (std::size_t node = 0; node < told.size(); ++node) {
      const std::string& name = options.nodes[node];
      if (!told[node].empty()) {
        look(name, told[node]);
      } else if (std::ranges::find(checked.missing, name) == checked.missing.end()) {
        checked.missing.push_back(name);
      }
    }
    if (clock.now_s() >= end_s) {
      checked.unauthenticated = workers.unauthenticated();
      return checked;
    }
    clock.sleep_s(std::min(interval_s, end_s - clock.now_s()));
  }
}

// Takes snapshots by node: of the nodes that the arguments name, else of this one.
class Snapshots {
 public:
  explicit Snapshots(const Args& args) : args_(args), reader_(Sysroot(args.get("root"))) {}

  // Calls `look` with each node's snapshot, once or for a while.
  Checked run(double seconds, double interval_s,
              const std::function<void(const std::string& node, const Snapshot& snapshot)>& look) {
    if (!args_.has("nodes")) {
      SystemClock clock;
      const double end_s = clock.now_s() + seconds;
      while (true) {
        look(slurm::this_node(), reader_.read(clock.wall_s()));
        if (clock.now_s() >= end_s) break;
        clock.sleep_s(std::min(interval_s, end_s - clock.now_s()));
      }
      Checked checked;
      checked.nodes = {slurm::this_node()};
      return checked;
    }
    return ask_all(args_, "counters", seconds, interval_s,
                   [&](const std::string& node, const std::string& told) { look(node, read_snapshot(told)); });
  }

 private:
  const Args& args_;
  CounterReader reader_;
};

int counters(const Args& args) {
  const double watch_s = args.has("watch") ? args.get_seconds("watch") : 0;
  const double interval_s = args.get_seconds("interval"), flap_s = args.get_seconds("flap");
  if (interval_s < 0.05) throw user_error("cli.value", "--interval: at least 50ms");
  CounterWatch watch(flap_s);
  if (args.has("since")) watch.start(read_snapshots(read_file(args.get("since"), Blame::user)));
  const Checked checked = Snapshots(args).run(
      watch_s, interval_s, [&](const std::string& node, const Snapshot& snapshot) { watch.see(node, snapshot); });
  if (args.has("save")) write_file_atomic(args.get("save"), to_json(watch.last()));
  std::vector<Finding> found = findings(checked);
  std::ranges::move(watch.findings(), std::back_inserter(found));
  std::size_t ports = 0, restricted = 0;
  for (const auto& [node, snapshot] : watch.last()) {
    ports += snapshot.ports.size();
    restricted += snapshot.restricted.size();
  }
  const std::string what = fmt::format("{} of {}", plural(ports, "port"), plural(watch.last().size(), "node"));
  return print(args, "counters", found, what,
               restricted > 0 ? std::vector{fmt::format("{} give no number here", plural(restricted, "counter"))}
                              : std::vector<std::string>{});
}

int config(const Args& args) {
  std::optional<clos::Fabric> fabric;
  if (args.has("fabric")) fabric = clos::load_fabric(args.get("fabric"), {});
  std::vector<NodeFacts> facts;
  Checked checked;
  if (args.has("nodes")) {
    checked = ask_all(args, "facts", 0, 1, [&](const std::string& node, const std::string& told) {
      facts.push_back({node, read_facts(told)});
    });
  } else {
    facts.push_back({slurm::this_node(), gather_facts(Sysroot(args.get("root")), environ)});
  }
  std::vector<Finding> found = findings(checked);
  std::ranges::move(judge_config(facts, args.get_seconds("flap"), fabric ? &*fabric : nullptr),
                    std::back_inserter(found));
  std::vector<std::string> not_run;
  for (const NodeFacts& node : facts)
    for (const std::string& what : node.facts.not_readable)
      if (const std::string text = what + " cannot be read"; std::ranges::find(not_run, text) == not_run.end())
        not_run.push_back(text);
  return print(args, "config", found, plural(facts.size(), "node"), not_run);
}

}  // namespace

std::vector<std::string> nodes_of(const Args& args, const std::string& launch) {
  const char* job = std::getenv("SLURM_JOB_NODELIST");
  return nodes_in_scope(args.get("nodes"), job == nullptr ? "" : job, launch);
}

RanksRequest ranks_of(const Args& args) {
  RanksRequest request{.transport = args.get("transport"), .deadline_s = args.get_seconds("deadline")};
  if (request.deadline_s < 1 || request.deadline_s > 3600)
    throw user_error("cli.value", "--deadline: a second to an hour");
  if (args.has("gpu")) {
    if (request.transport != "nccl") throw user_error("cli.value", "--gpu: with --transport nccl only");
    request.gpu = static_cast<int>(args.get_int("gpu", 0, 1023));
  }
  return request;
}

AgentWorkersOptions agents_of(const Args& args) {
  AgentWorkersOptions options{.nodes = {}, .launch = args.get("launch"), .agent = {own_path(), "agent"}};
  if (options.launch.empty()) throw user_error("cli.value", "--launch: how? srun, or 'ssh {node} {agent}'");
  options.nodes = nodes_of(args, options.launch);
  options.wait_s = std::min(args.get_seconds("wait"), 86400.0);
  return options;
}

Command collectives_command() {
  return {.name = "collectives",
          .summary = "measure collectives of all ranks and of the groups of a training run",
          .options = {{"nodes", "HOSTLIST", "Nodes to use, with one rank each (default: all nodes of the job)."},
                      {"transport", "mpi|nccl|threads", "Transport. nccl runs between GPUs, one per rank.", "mpi"},
                      kGpu,
                      kDeadline,
                      {"ranks", "N", "Number of ranks with --transport threads."},
                      {"what", "LIST", "Collectives to measure.",
                       "all_reduce,all_gather,reduce_scatter,all_to_all,broadcast,send_recv"},
                      {"from", "SIZE", "Smallest size.", "1KiB"},
                      {"to", "SIZE", "Largest size. Sizes grow by a factor of four.", "16MiB"},
                      {"iterations", "N", "Maximum number of iterations per size, within two seconds.", "20"},
                      {"config", "FILE", "Also measure the tp, dp and pp groups of this training configuration."},
                      {.name = "set", .value = "KEY=VALUE", .doc = "Override a key of that file.", .many = true},
                      {"min-busbw", "GBS", "Fail if the bus bandwidth in GB/s is below 90 % of GBS.", "0"},
                      kJson},
          .run = collectives,
          .description =
              "Inside a job, the command starts itself with srun, with as many tasks as the job has. Elsewhere, start "
              "it with mpirun, one process per rank. The time of an iteration is that of its slowest rank. Every "
              "element of every result is verified. The output has algorithm and bus bandwidth, as in nccl-tests. "
              "Groups of a mesh and rails (ranks with the same local rank) run concurrently; a group that takes more "
              "than twice the median time is reported."};
}

Command counters_command() {
  return {.name = "counters",
          .summary = "report growing error counters and link flaps of ports",
          .options = {kNodesOrHere,
                      kLaunch,
                      kWait,
                      kJson,
                      kRoot,
                      {"flap", "TIME", "With --watch, ignore outages shorter than this that the port does not count.",
                       "0s"},
                      {"watch", "TIME", "Poll for this long."},
                      {"interval", "TIME", "Polling interval.", "500ms"},
                      {"save", "FILE", "Save the counters to FILE, for --since."},
                      {"since", "FILE", "Report the growth since FILE was saved."}},
          .run = counters,
          .description =
              "Reads /sys/class/infiniband and /sys/class/net, on this node or on all nodes of --nodes, and reports "
              "counters that grew since a --save or during --watch. Every loss of a link is reported; other counters "
              "have limits per hour, see COUNTERS."};
}

Command config_command() {
  return {
      .name = "config",
      .summary = "check NCCL's environment and the fabric settings for consistency on all nodes",
      .options = {kNodesOrHere,
                  kLaunch,
                  kWait,
                  kJson,
                  kRoot,
                  kFlap,
                  {"fabric", "FILE", "Also compare the nodes with this description of the fabric, ms-fabric(5)."}},
      .run = config,
      .description =
          "Compares NCCL's variables with the existing interfaces and adapters, and nodes with each other. It "
          "finds retry timeouts shorter than a flap, GIDs that are not RoCE v2, unused interfaces and adapters, "
          "and differences in MTU, ECN and traffic classes. With --fabric, it also finds queue pairs, PXN, adaptive "
          "routing, ports and rates that differ from those that ms-netcheck plan assumes. The hash of the switches "
          "cannot be seen from a node."};
}

}  // namespace ms::net
