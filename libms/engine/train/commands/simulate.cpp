// One of the commands of train/commands/commands.h: times a step on a simulated cluster, or a job with failures.
#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/print.h"
#include "base/user_path.h"
#include "train/commands/commands.h"
#include "train/commands/show_failures.h"
#include "train/commands/show_simulation.h"
#include "train/elastic.h"
#include "train/simulate/expert_load.h"
#include "train/simulate/fabric_forecast.h"
#include "train/simulate/failure_study.h"
#include "train/simulate/speed_up.h"

namespace ms::train {
namespace {

constexpr std::array kStepOptions{"slow", "every-rank", "trace", "steps", "tokens"};
constexpr std::array kJobOptions{"days",     "spares",         "seeds",           "trace-nodes",
                                 "recovery", "without-driver", "storage-outages", "shrink"};

std::vector<double> busiest_ranks_of(const Args& args, const Plan& plan) {
  return args.has("expert-load") ? busiest_ranks(args.get("expert-load"), plan) : std::vector<double>{};
}

std::vector<clos::CollectiveForecast> network_of(const Args& args, const Plan& plan, const cost::Cluster& cluster) {
  if (args.has("fabric")) return forecast_network(clos::load_fabric(args.get("fabric"), {}), plan, cluster);
  return {};
}

// The sizes that a run has fewer nodes with, whole ones, and its steps take longer; from large to small.
std::vector<SmallerSize> smaller_sizes(const Plan& plan, const cost::Cluster& cluster, double iteration_s) {
  std::vector<std::int64_t> sizes = allowed_dp(plan.settings);
  std::erase_if(sizes, [&](std::int64_t dp) { return dp >= plan.settings.mesh.dp; });
  std::vector<SmallerSize> smaller;
  for (const SpeedUp& size : speed_ups(plan.settings, sizes, cluster)) {
    if (!size.problem.empty() || size.ranks % cluster.node.ranks != 0) continue;
    smaller.push_back({.nodes = static_cast<int>(size.ranks / cluster.node.ranks),
                       .slower = std::max(1.0, size.iteration_s / iteration_s)});
  }
  if (smaller.empty()) {
    throw user_error(
        "cli.value", "--shrink: the configuration allows no smaller mesh.dp that fills whole nodes",
        "train.global_batch must be a multiple of mesh.dp x train.microbatch, and mesh.dp_min is the least");
  }
  std::ranges::reverse(smaller);
  return smaller;
}

int run_failures(const Args& args, const Plan& plan, const cost::Cluster& cluster) {
  for (const char* name : kStepOptions) {
    if (args.has(name))
      throw user_error("cli.value", fmt::format("--{} is about one step, --failures about days", name));
  }
  if (!args.has("days")) throw user_error("cli.missing", "--failures needs --days N");
  const double days = args.get_double("days");
  if (!(days > 0 && days <= 3650)) throw user_error("cli.value", "--days is above 0 and at most 3650");
  std::optional<std::int64_t> watched;
  if (args.has("trace-nodes")) watched = args.get_int("trace-nodes", 1, 10'000'000);
  const FaultSource source = read_faults(args.get("failures"), watched);
  const Settings& settings = plan.settings;
  JobOptions job{.nodes = static_cast<int>((plan.mesh.size() + cluster.node.ranks - 1) / cluster.node.ranks),
                 .spares = static_cast<int>(args.get_int("spares", 0, 65'536)),
                 .seconds = days * kSecondsPerDay,
                 .driver = !args.has("without-driver"),
                 .comm_timeout_s = settings.run.comm_timeout_s,
                 .least_timeout_s = settings.run.least_timeout_s,
                 .recovery = load_recovery(args.list("recovery"))};
  if (!settings.checkpoint.async) job.recovery.stall_s = job.recovery.write_s;
  job.iteration_s =
      simulate(
          plan, cluster,
          {.parts = false, .busiest_ranks = busiest_ranks_of(args, plan), .network = network_of(args, plan, cluster)})
          .iteration_s;
  StorageOutages storage;
  if (args.has("storage-outages")) storage = parse_outages(args.get("storage-outages"));
  if (args.has("shrink") && !job.driver)
    throw user_error("cli.value", "--shrink is what ms-driver does, and --without-driver leaves it out");
  if (args.has("shrink")) job.smaller = smaller_sizes(plan, cluster, job.iteration_s);
  job.interval_s = save_interval_s(settings.checkpoint, source, job);
  const FailureStudy study = study_failures(job, source, storage, static_cast<int>(args.get_int("seeds", 1, 1000)));
  write_out(args.has("json") ? failures_json(study) : failures_text(study));
  return 0;
}

int simulate_sizes(const Args& args, const Loaded& loaded, const cost::Cluster& cluster) {
  for (const char* option : {"tokens", "slow", "every-rank", "expert-load", "fabric", "trace", "steps", "failures"}) {
    if (args.has(option))
      throw user_error("cli.value", fmt::format("--{} is about one layout, and mesh.dp is \"auto\"", option),
                       fmt::format("choose one: --set mesh.dp={}", loaded.dp_sizes.back()));
  }
  if (args.has("curve")) check_user_file(args.get("curve"));
  const std::vector<SpeedUp> rows = speed_ups(loaded.settings, loaded.dp_sizes, cluster);
  if (args.has("curve")) write_user_file(args.get("curve"), speed_up_csv(rows));
  write_out(args.has("json") ? speed_up_json(rows, cluster) : speed_up_text(rows));
  return 0;
}

int run_simulate(const Args& args) {
  const Loaded loaded = load(args);
  const cost::Cluster cluster = load_cluster(args);
  if (!loaded.dp_sizes.empty()) return simulate_sizes(args, loaded, cluster);
  if (args.has("curve")) {
    throw user_error("cli.value", "--curve needs mesh.dp = \"auto\", and it is a number",
                     "--set mesh.dp=auto, with mesh.dp_min and mesh.dp_max");
  }
  const Plan made = make_plan(loaded.settings, static_cast<int>(ranks_of(loaded.settings)));
  if (args.has("failures")) return run_failures(args, made, cluster);
  for (const char* name : kJobOptions) {
    if (args.has(name)) throw user_error("cli.value", fmt::format("--{} needs --failures", name));
  }
  SimulateOptions options;
  options.slow = parse_slow(args.list("slow"), made.mesh, cluster);
  options.every_rank = args.has("every-rank");
  options.trace_dir = args.get("trace");
  options.busiest_ranks = busiest_ranks_of(args, made);
  options.network = network_of(args, made, cluster);
  if (args.has("steps") && !args.has("trace")) throw user_error("cli.value", "--steps needs --trace");
  if (args.has("steps")) options.trace_steps = static_cast<int>(args.get_int("steps", 1, 10'000));
  constexpr double kMostTokens = 1e18;
  const double tokens = args.has("tokens") ? args.get_double("tokens") : 0;
  if (args.has("tokens") && !(tokens >= 1 && tokens <= kMostTokens))
    throw user_error("cli.value",
                     fmt::format("--tokens: must be 1 to {:.0e}, got {}", kMostTokens, args.get("tokens")));
  const Simulation simulation = simulate(made, cluster, options);
  write_out(args.has("json") ? simulation_json(made, cluster, simulation, tokens)
                             : simulation_text(made, cluster, simulation, tokens));
  return 0;
}

}  // namespace

Command simulate_command() {
  return {
      .name = "simulate",
      .summary = "simulate a step, or a job with failures, on a cluster",
      .positionals = {config_argument()},
      .options =
          {set_option(),
           cluster_option(),
           set_cluster_option(),
           json_option(),
           {"tokens", "N", "Also print how long training on N tokens takes."},
           {"curve", "FILE",
            "With mesh.dp = \"auto\": also write the speed-up curve to FILE, as CSV for jobs.curves of "
            "ms-loan.toml(5)."},
           {.name = "slow",
            .value = "WHAT=N:FACTOR",
            .doc = "Slow down a rank, a node or a rank's links by FACTOR: rank=17:1.2, node=3:1.1, link=17:2. "
                   "Implies --every-rank.",
            .many = true},
           {"every-rank", "", "Simulate every rank, with its own random speed, instead of one rank per stage."},
           {"expert-load", "uniform|zipf=S|FILE",
            "How unevenly tokens choose experts (model.experts). zipf=S: the n-th most chosen one in proportion to "
            "n^-S, in a random order. FILE: as in the last line of this metrics.jsonl with metrics.expert_load_every. "
            "The mesh.ep rank whose experts have most rows delays the others.",
            "uniform"},
           {"fabric", "FILE",
            "Slow down transfers between nodes by the flows that collide in this fabric, ms-fabric(5)."},
           {"trace", "DIR", "Write a trace of every rank to DIR, for ms-tracepp(1)."},
           {"steps", "N", "Number of steps in the traces.", "3"},
           {"failures", "FILE|RATE",
            "Simulate a job of --days with failures. FILE is a trace of faults or a table of fault rates. RATE is "
            "failures per node and day, with the mean repair time: 0.004:12h. With 0.004 alone, repair takes no time."},
           {"days", "N", "Length of the job."},
           {"spares", "K", "Number of spare nodes.", "0"},
           {"trace-nodes", "N", "Number of nodes in the trace of --failures."},
           {.name = "recovery",
            .value = "KEY=VALUE",
            .doc = "Set a parameter of recovery, see RECOVERY in ms-train(1).",
            .many = true},
           {"storage-outages", "RATE:TIME",
            "Simulate outages of the checkpoint storage: outages per day and their mean length (0.1:2h). During an "
            "outage saves fail, loads wait, and training continues."},
           {"shrink", "",
            "When spares are exhausted, continue at the largest smaller mesh.dp that the configuration allows, as "
            "ms-driver run --shrink does."},
           {"without-driver", "",
            "Simulate a job without ms-driver: an operator handles each failure and requeues the job."},
           {"seeds", "N", "Number of simulated jobs, each with different faults.", "20"}},
      .run = run_simulate,
      .description =
          "The engine issues a step as in a run, but computes nothing: the step is solved in virtual time, with the "
          "speeds in the cluster file. One rank stands for its whole stage, unless ranks differ (--slow, --every-rank, "
          "--trace). The output has the time of a step, its MFU, where the time goes, and the memory of each "
          "stage.\n\nWith --fabric, the groups of an axis get the share of network.rate that ms-netcheck plan "
          "forecasts "
          "for the slowest channel of that axis, at the median of 32 starts of the job. This bounds the loss from "
          "above: "
          "channels of a pipeline rarely send all at once. Hosts and leaf switches of "
          "both "
          "files must agree, and network.spine_share must be 1, since it stands for the same collisions.\n\nWith "
          "mesh.dp = \"auto\" it prints the speed of each allowed mesh.dp, at the same global "
          "batch.\n\nWith --failures it simulates a job of many days: faults, their detection and diagnosis by the "
          "rules of ms-driver(1), recovery, and repeated steps. It prints the share of time spent in training steps "
          "that were not lost, the parts of the remaining time, and the results for other checkpoint intervals and "
          "numbers of spare nodes. Each number is a mean over the seeds, with two standard errors. The same seeds give "
          "the same numbers.\n\nA file of faults is the JSON of InfiniteHBD's trace "
          "(github.com/stepfun-ai/InfiniteHBD-Trace), or CSV. CSV with the columns node, begin, repair (in days) and "
          "optionally kind is a trace. CSV with kind, per_node_day and repair (the mean of an exponential "
          "distribution, in days) has hazards. A kind is crash (a rank exits; the default), lost (the node stops "
          "responding), hang (ranks wait forever) or slow. Lines that begin with # are ignored. If faults of a node "
          "overlap, it is out until the last is repaired. Every node of the job replays the history of a random node "
          "of the trace, from a random moment. The job is requeued when fewer nodes are left than it needs; excluded "
          "nodes that have been repaired then rejoin it. The driver answers slow nodes as ms-driver run --replace-slow "
          "--max-requeues does, when recovery.slow_found has passed. The queue takes recovery.requeue if enough nodes "
          "have been repaired, and cannot help otherwise. How long nodes stay slow is the mean of the "
          "faults.\n\nWith --storage-outages a failure loses the steps since the "
          "last successful save, and the next attempt waits until the checkpoint can be loaded (the part 'storage'). "
          "With --shrink a step of a smaller job counts as effective in proportion to its speed; the rest is the part "
          "'shrunk'. When enough nodes for the full size are healthy, the job saves and is requeued, as ms-loan does "
          "with runs that may grow."};
}

}  // namespace ms::train
