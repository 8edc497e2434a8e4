// One of the commands of train/commands/commands.h: times a step on a simulated cluster.
#include "base/print.h"
#include "train/commands/commands.h"
#include "train/commands/show_simulation.h"

namespace ms::train {
namespace {

int run_simulate(const Args& args) {
  const Loaded loaded = load(args);
  const cost::Cluster cluster = load_cluster(args);
  const Plan made = make_plan(loaded.settings, static_cast<int>(ranks_of(loaded.settings)));
  SimulateOptions options;
  options.slow = parse_slow(args.list("slow"), made.mesh, cluster);
  options.every_rank = args.has("every-rank");
  options.trace_dir = args.get("trace");
  if (args.has("steps") && !args.has("trace")) throw user_error("cli.value", "--steps says nothing without --trace");
  if (args.has("steps")) options.trace_steps = static_cast<int>(args.get_int("steps", 1, 10'000));
  const double tokens = args.has("tokens") ? args.get_double("tokens") : 0;
  const Simulation simulation = simulate(made, cluster, options);
  write_out(args.has("json") ? simulation_json(made, cluster, simulation, tokens)
                             : simulation_text(made, cluster, simulation, tokens));
  return 0;
}

}  // namespace

Command simulate_command() {
  return {.name = "simulate",
          .summary = "time a step on a simulated cluster",
          .positionals = {config_argument()},
          .options = {set_option(),
                      cluster_option(),
                      set_cluster_option(),
                      json_option(),
                      {.name = "tokens", .value = "N", .doc = "Also says how long a run over so many tokens takes."},
                      {.name = "slow",
                       .value = "WHAT=N:FACTOR",
                       .doc = "Makes a rank, a node or a rank's links so many times as slow: rank=17:1.2, "
                              "node=3:1.1, link=17:2. Every rank is simulated then.",
                       .many = true},
                      {.name = "every-rank",
                       .doc = "Simulates every rank, each as fast as chance has it, instead of one for each "
                              "stage."},
                      {.name = "trace", .value = "DIR", .doc = "Every rank writes its trace there, for ms-tracepp(1)."},
                      {.name = "steps", .value = "N", .doc = "Steps in the traces.", .default_text = "3"}},
          .run = run_simulate,
          .description =
              "The engine issues a step as it would in a run; nothing is computed, and the step is solved in "
              "virtual time with what the cluster file says of the machines. One rank of each stage stands for "
              "all of its stage, unless ranks are to differ. Of a step it says how long it takes, what MFU "
              "that is, where the time goes, and what memory each stage needs."};
}

}  // namespace ms::train
