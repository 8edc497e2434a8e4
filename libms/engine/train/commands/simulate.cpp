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
#include "train/simulate/failure_study.h"
#include "train/simulate/speed_up.h"

namespace ms::train {
namespace {

constexpr std::array kStepOptions{"slow", "every-rank", "trace", "steps", "tokens"};
constexpr std::array kJobOptions{"days",     "spares",         "seeds",           "trace-nodes",
                                 "recovery", "without-driver", "storage-outages", "shrink"};

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
  job.iteration_s = simulate(plan, cluster, {.parts = false}).iteration_s;
  StorageOutages storage;
  if (args.has("storage-outages")) storage = parse_outages(args.get("storage-outages"));
  if (args.has("shrink") && !job.driver)
    throw user_error("cli.value", "--shrink is what ms-driver does, and --without-driver leaves it out");
  if (args.has("shrink")) job.smaller = smaller_sizes(plan, cluster, job.iteration_s);
  job.interval_s = save_interval_s(settings.checkpoint, job.iteration_s, job.recovery.stall_s);
  const FailureStudy study = study_failures(job, source, storage, static_cast<int>(args.get_int("seeds", 1, 1000)));
  write_out(args.has("json") ? failures_json(study) : failures_text(study));
  return 0;
}

int simulate_sizes(const Args& args, const Loaded& loaded, const cost::Cluster& cluster) {
  for (const char* option : {"tokens", "slow", "every-rank", "trace", "steps", "failures"}) {
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
    throw user_error("cli.value", "--curve is of mesh.dp = \"auto\", and mesh.dp is a number",
                     "--set mesh.dp=auto, with mesh.dp_min and mesh.dp_max");
  }
  const Plan made = make_plan(loaded.settings, static_cast<int>(ranks_of(loaded.settings)));
  if (args.has("failures")) return run_failures(args, made, cluster);
  for (const char* name : kJobOptions) {
    if (args.has(name)) throw user_error("cli.value", fmt::format("--{} says nothing without --failures", name));
  }
  SimulateOptions options;
  options.slow = parse_slow(args.list("slow"), made.mesh, cluster);
  options.every_rank = args.has("every-rank");
  options.trace_dir = args.get("trace");
  if (args.has("steps") && !args.has("trace")) throw user_error("cli.value", "--steps says nothing without --trace");
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
      .summary = "time a step on a simulated cluster",
      .positionals = {config_argument()},
      .options = {set_option(),
                  cluster_option(),
                  set_cluster_option(),
                  json_option(),
                  {.name = "tokens", .value = "N", .doc = "Also says how long a run over so many tokens takes."},
                  {.name = "curve",
                   .value = "FILE",
                   .doc = "With mesh.dp = \"auto\": also writes the speed-up curve there, as CSV, for jobs.curves "
                          "of ms-loan.toml(5)."},
                  {.name = "slow",
                   .value = "WHAT=N:FACTOR",
                   .doc = "Makes a rank, a node or a rank's links so many times as slow: rank=17:1.2, "
                          "node=3:1.1, link=17:2. Every rank is simulated then.",
                   .many = true},
                  {.name = "every-rank",
                   .doc = "Simulates every rank, each as fast as chance has it, instead of one for each "
                          "stage."},
                  {.name = "trace", .value = "DIR", .doc = "Every rank writes its trace there, for ms-tracepp(1)."},
                  {.name = "steps", .value = "N", .doc = "Steps in the traces.", .default_text = "3"},
                  {.name = "failures",
                   .value = "FILE|RATE",
                   .doc =
                       "Simulates a job of --days in which nodes fail as in this trace, by these hazards, or so "
                       "often a node and day (0.004:12h with the mean repair; 0.004: nodes are of use again at once)."},
                  {.name = "days", .value = "N", .doc = "How long the job is."},
                  {.name = "spares", .value = "K", .doc = "Nodes that the job has more.", .default_text = "0"},
                  {.name = "trace-nodes", .value = "N", .doc = "Of how many nodes a trace is."},
                  {.name = "recovery",
                   .value = "KEY=VALUE",
                   .doc = "Says what a recovery takes: see RECOVERY in ms-train(1).",
                   .many = true},
                  {.name = "storage-outages",
                   .value = "RATE:TIME",
                   .doc = "The storage of checkpoints is away so many times a day, for so long in the mean (0.1:2h): "
                          "saves that meet it fail, training goes on, and nothing can be loaded."},
                  {.name = "shrink",
                   .doc = "Where spares are exhausted the job goes on at the largest smaller mesh.dp that the "
                          "configuration allows, as with ms-driver run --shrink."},
                  {.name = "without-driver",
                   .doc = "Nobody but an operator looks after the job, which is queued again."},
                  {.name = "seeds", .value = "N", .doc = "Runs, each with other faults.", .default_text = "20"}},
      .run = run_simulate,
      .description =
          "The engine issues a step as it would in a run; nothing is computed, and the step is solved in "
          "virtual time with what the cluster file says of the machines. One rank of each stage stands for "
          "all of its stage, unless ranks are to differ. Of a step it says how long it takes, what MFU "
          "that is, where the time goes, and what memory each stage needs.\n\n"
          "With mesh.dp = \"auto\" it says how fast each size is that mesh.dp may have, with the same global batch.\n\n"
          "With --failures it simulates a job of many days: its faults, how they are noticed, judged and recovered "
          "from by what ms-driver(1) is built of, and what is trained again. It prints which share of the time "
          "trained steps that were kept, where the rest went, and what other checkpoint intervals and numbers of "
          "spare nodes would give; each with two standard errors of the mean over the seeds. The same seeds give "
          "the same numbers.\n\n"
          "A file of faults is the JSON of InfiniteHBD's trace (github.com/stepfun-ai/InfiniteHBD-Trace), or CSV: "
          "with the columns node, begin, repair, in days, and kind, it is a trace; with kind, per_node_day and "
          "repair, the mean in days, of an exponential distribution, it has hazards. A kind is crash (a rank "
          "ends; also without the column), lost (the node answers no more), hang (ranks wait for ever) or slow. "
          "Lines that begin with # are passed over. A node is out from the first of faults that overlap until the "
          "last is repaired. Every node of the job gets the history of one of the trace's nodes, from any moment "
          "on. A node that was left out comes back when it is repaired and the job is queued again, as it is when "
          "fewer nodes are left than it needs.\n\n"
          "With --storage-outages a failure loses the steps since the last save that no outage met, and the next "
          "attempt waits until the checkpoint can be loaded (storage). With --shrink steps of a smaller job count as "
          "effective as far as they are as fast as those of the whole one; the rest is shrunk. When nodes for the "
          "whole "
          "one are well again, it saves and is queued again, as ms-loan has runs do that may grow."};
}

}  // namespace ms::train
