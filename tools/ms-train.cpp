// ms-train: the training engine's command line. Tables, then calls.
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/cli.h"
#include "base/file.h"
#include "base/man.h"
#include "base/progress.h"
#include "comm/launch.h"
#include "train/calibrate.h"
#include "train/gpu_environment.h"
#include "train/launch.h"
#include "train/place.h"
#include "train/show_plan.h"
#include "train/show_simulation.h"
#include "train/tune.h"
#include "watch/fault.h"

namespace {

using namespace ms;  // NOLINT: a main

const Positional kConfig{.name = "CONFIG", .doc = "The configuration, TOML; ms.toml(5) lists the keys."};
const Option kSet{.name = "set", .value = "KEY=VALUE", .doc = "Sets a key over what the file says.", .many = true};

const Option kCluster{.name = "cluster", .value = "FILE", .doc = "What the machines can do, ms-cluster(5)."};
const Option kSetCluster{
    .name = "set-cluster", .value = "KEY=VALUE", .doc = "Sets a key over what the cluster file says.", .many = true};
const Option kJson{.name = "json", .doc = "One JSON document instead of tables."};

train::Loaded load(const Args& args) { return train::load(args.get("CONFIG"), args.list("set")); }

void print_outcome(const train::Loaded& loaded, const train::Outcome& outcome) {
  if (!outcome.sample.empty()) fmt::print("The model writes:\n\n{}\n\n", outcome.sample);
  fmt::print("steps         {}{}\n", outcome.steps, outcome.stopped ? ", stopped on purpose" : "");
  if (outcome.steps > outcome.start) {
    fmt::print("loss          {:.4f}\n", outcome.loss);
    if (outcome.valid_loss >= 0) fmt::print("valid_loss    {:.4f}\n", outcome.valid_loss);
    fmt::print("tokens_per_s  {:.0f}\n", outcome.tokens_per_s);
  }
  if (!outcome.checkpoint.empty()) fmt::print("checkpoint    {}\n", outcome.checkpoint);
  fmt::print("metrics       {}/metrics.jsonl\n", loaded.settings.run.dir);
  std::fflush(stdout);
}

int run(const Args& args) {
  const train::Loaded loaded = load(args);
  const mesh::MeshConfig& mesh = loaded.settings.mesh;
  const std::int64_t ranks = mesh.dp * mesh.pp * mesh.tp;
  if (args.has("ranks") && args.get_int("ranks", 1) != ranks) {
    throw user_error("mesh.size",
                     fmt::format("--ranks {}, but mesh.dp x mesh.pp x mesh.tp = {} x {} x {} = {}",
                                 args.get_int("ranks"), mesh.dp, mesh.pp, mesh.tp, ranks),
                     fmt::format("change [mesh], or use --ranks {}", ranks));
  }
  const comm::Launch launch = comm::this_launch();
  if (args.has("ranks") && launch.size > 1) {
    throw user_error(
        "comm.launch",
        fmt::format("--ranks runs threads of one process, but {} started {} processes", launch.launcher, launch.size),
        "start one process, or leave --ranks out");
  }
  const auto tell = [&loaded](const train::Outcome& outcome) { print_outcome(loaded, outcome); };
  const train::LaunchOptions options{.fresh = args.has("fresh"), .tell = tell};
  return static_cast<int>(launch.size > 1 ? train::run_mpi(loaded, options) : train::run_threads(loaded, options));
}

int place(const Args& args, const train::Plan& made) {
  const slurm::Getenv getenv = [](const char* name) { return std::getenv(name); };
  const train::HostsRead hosts = train::read_hosts(args.get("hostfile"), getenv);
  const auto topology = args.has("topology") ? std::optional(args.get("topology")) : std::nullopt;
  const train::Placed placed =
      train::place_ranks(made.mesh, made.chunks, hosts, train::read_switches(topology, getenv));
  if (args.has("order")) write_file_atomic(args.get("order"), train::order_text(placed));
  fmt::print("{}", args.has("json") ? train::placed_json(placed)
                                    : train::placed_text(placed, args.get("CONFIG"), args.get("order")));
  return 0;
}

int plan(const Args& args) {
  const train::Loaded loaded = load(args);
  const mesh::MeshConfig& mesh = loaded.settings.mesh;
  const std::int64_t world = args.has("world") ? args.get_int("world", 1, 1 << 24) : mesh.dp * mesh.pp * mesh.tp;
  const train::Plan made = train::make_plan(loaded.settings, static_cast<int>(world));
  if (args.has("hostfile")) return place(args, made);
  for (const char* option : {"topology", "order"}) {
    if (args.has(option)) throw user_error("cli.value", fmt::format("--{} says nothing without --hostfile", option));
  }
  fmt::print("{}", args.has("json") ? train::plan_json(made) : train::plan_text(made));
  return 0;
}

cost::Cluster load_cluster(const Args& args) {
  if (!args.has("cluster")) {
    throw user_error("cli.value", "a step takes as long as the machines need: --cluster FILE says what they can do",
                     "ms-cluster(5) describes such files, and configs/clusters/ has some");
  }
  return cost::load_cluster(args.get("cluster"), args.list("set-cluster"));
}

int simulate(const Args& args) {
  const train::Loaded loaded = load(args);
  const cost::Cluster cluster = load_cluster(args);
  const mesh::MeshConfig& mesh = loaded.settings.mesh;
  const train::Plan made = train::make_plan(loaded.settings, static_cast<int>(mesh.dp * mesh.pp * mesh.tp));
  train::SimulateOptions options;
  options.slow = train::parse_slow(args.list("slow"), made.mesh, cluster);
  options.every_rank = args.has("every-rank");
  options.trace_dir = args.get("trace");
  if (args.has("steps") && !args.has("trace")) throw user_error("cli.value", "--steps says nothing without --trace");
  if (args.has("steps")) options.trace_steps = static_cast<int>(args.get_int("steps", 1, 10'000));
  const double tokens = args.has("tokens") ? args.get_double("tokens") : 0;
  const train::Simulation simulation = train::simulate(made, cluster, options);
  fmt::print("{}", args.has("json") ? train::simulation_json(made, cluster, simulation, tokens)
                                    : train::simulation_text(made, cluster, simulation, tokens));
  return 0;
}

int tune(const Args& args) {
  const train::Loaded loaded = load(args);
  const cost::Cluster cluster = load_cluster(args);
  const mesh::MeshConfig& mesh = loaded.settings.mesh;
  const std::int64_t world = args.has("world") ? args.get_int("world", 1, 1 << 20) : mesh.dp * mesh.pp * mesh.tp;
  train::TuneOptions options;
  options.patience_s = args.get_seconds("patience");
  const train::Tuning tuning = train::tune(loaded.settings, cluster, world, options);
  if (args.has("output")) write_file_atomic(args.get("output"), train::to_toml(tuning.best.front().settings));
  fmt::print("{}", args.has("json") ? train::tuning_json(tuning) : train::tuning_text(tuning, cluster));
  return 0;
}

int calibrate(const Args& args) {
  const std::string dtype = args.get("dtype");
  if (dtype != "bf16" && dtype != "fp32") throw user_error("cli.value", fmt::format("--dtype {}: bf16 or fp32", dtype));
  train::CalibrateOptions options;
  options.dtype = dtype == "bf16" ? tensor::DType::bf16 : tensor::DType::f32;
  if (args.has("ranks")) options.ranks = static_cast<int>(args.get_int("ranks", 1, 1024));
  SystemClock clock;
  std::optional<Progress> progress;
  options.progress = [&](std::size_t done, std::size_t of) {
    if (!progress) progress.emplace("calibrate", static_cast<std::int64_t>(of), "models", clock);
    progress->update(static_cast<std::int64_t>(done));
  };
  const std::string text = cost::to_toml(train::calibrate(options));
  progress->finish();
  if (args.has("output")) {
    write_file_atomic(args.get("output"), text);
  } else {
    fmt::print("{}", text);
  }
  return 0;
}

int check(const Args& args) {
  const train::Loaded loaded = load(args);
  const mesh::MeshConfig& mesh = loaded.settings.mesh;
  train::make_plan(loaded.settings, static_cast<int>(mesh.dp * mesh.pp * mesh.tp));
  if (args.has("dump")) {
    fmt::print("{}", loaded.resolved);
  } else {
    fmt::print("{}: ok, {} ranks\n", args.get("CONFIG"), mesh.dp * mesh.pp * mesh.tp);
  }
  return 0;
}

std::string cluster_manual() {
  cost::Cluster cluster;
  ConfigSchema schema;
  cost::bind(schema, cluster);
  return man::config_page(
      {.name = "ms-cluster",
       .summary = "what the machines of a simulated cluster can do",
       .description = "What ms-train simulate takes the time of operations and messages from. An efficiency curve is a "
                      "list of \"size:share\" points, between which the share of the peak is interpolated over the "
                      "logarithm of the size; beyond its ends it is level. A value given by --set-cluster "
                      "SECTION.KEY=VALUE wins over the file.",
       .see_also = {"ms-train(1)"}},
      schema.reference());
}

std::string config_manual() {
  train::Settings settings;
  ConfigSchema schema;
  train::bind(schema, settings);
  return man::config_page(
      {.name = "ms.toml",
       .summary = "configuration of ms-train",
       .description = "What ms-train runs. A value given by --set SECTION.KEY=VALUE wins over the file, and "
                      "the file over the default.",
       .see_also = {"ms-train(1)", "ms-exit(7)"}},
      schema.reference());
}

const Tool kTool{
    .name = "ms-train",
    .summary = "train a language model in 3D parallel",
    .commands =
        {{.name = "run",
          .summary = "train",
          .positionals = {kConfig},
          .options = {kSet,
                      {.name = "ranks",
                       .value = "N",
                       .doc = "Runs N ranks as threads of this process; N must be dp x pp x tp."},
                      {.name = "fresh",
                       .doc = "Begins at step 0: checkpoints in checkpoint.dir are set aside, not used."}},
          .run = run,
          .description =
              "Under mpirun or srun --mpi=pmix each process is a rank; anywhere else the ranks are threads of "
              "this process. The run writes config.toml, metrics.jsonl and verdict.json into run.dir. Where "
              "checkpoint.dir is set it goes on from the newest complete checkpoint there. SIGTERM, SIGINT, "
              "SIGHUP, SIGUSR2 or a file 'stop' in run.dir end it after a step that all ranks agree on, with a "
              "checkpoint and exit status 75, or 93 where nothing is saved; SIGTERM or SIGINT for the second "
              "time end it at once."},
         {.name = "plan",
          .summary = "show mesh, layers per stage, schedule, memory and work; or where ranks should run",
          .positionals = {kConfig},
          .options = {kSet,
                      {.name = "world", .value = "N", .doc = "Number of ranks; dp x pp x tp must be that."},
                      kJson,
                      {.name = "hostfile",
                       .value = "FILE",
                       .doc = "Shows where ranks should run instead: hosts, or hostlists as Slurm writes them, "
                              "one a line, with slots=N; '-' is standard input, 'slurm' the job this runs in."},
                      {.name = "topology",
                       .value = "FILE",
                       .doc = "The switches between the hosts: topology.conf, or the output of scontrol show "
                              "topology; without it scontrol is asked."},
                      {.name = "order",
                       .value = "FILE",
                       .doc = "Writes the host of every rank there, as SLURM_HOSTFILE wants it."}},
          .run = plan,
          .description =
              "Needs no cluster: everything is computed from the configuration. The work of a rank's step is what "
              "its operations compute, recomputation included, and the bytes of memory that they cannot do "
              "without.\n\n"
              "With --hostfile it says which ranks should run on which host: a tensor parallel group inside a "
              "node, a data parallel group under the fewest and lowest switches, the pipeline over what is "
              "left, and how that differs from the hosts as they are listed. Where Slurm tells no switches, "
              "one flat network is assumed. Inside a job, srun obeys the order with --distribution=arbitrary, "
              "and -N and -n as the output says: SLURM_HOSTFILE names the file."},
         {.name = "simulate",
          .summary = "time a step on a cluster that is not there",
          .positionals = {kConfig},
          .options = {kSet,
                      kCluster,
                      kSetCluster,
                      kJson,
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
          .run = simulate,
          .description =
              "The engine issues a step as it would in a run; nothing is computed, and the step is solved in "
              "virtual time with what the cluster file says of the machines. One rank of each stage stands for "
              "all of its stage, unless ranks are to differ. Of a step it says how long it takes, what MFU "
              "that is, where the time goes, and what memory each stage needs."},
         {.name = "tune",
          .summary = "find the layout that trains fastest on a cluster",
          .positionals = {kConfig},
          .options =
              {kSet,
               kCluster,
               kSetCluster,
               {.name = "world", .value = "N", .doc = "Number of ranks; without it that of [mesh]."},
               {.name = "output", .value = "FILE", .doc = "Writes the fastest layout there, as a configuration."},
               {.name = "patience",
                .value = "TIME",
                .doc = "How long to simulate; what is less promising may not be reached then.",
                .default_text = "100s"},
               kJson},
          .run = tune,
          .description =
              "Tries every way to cut the model over the ranks that fits the devices' memory: tp within a node, "
              "pp, chunks, schedule, microbatch, the overlap of tp, and the least recomputation. Each is "
              "simulated, the most promising first. Prints the ten fastest, and what the others lose by."},
         {.name = "calibrate",
          .summary = "measure this machine and write a cluster file of it",
          .options = {{.name = "output", .value = "FILE", .doc = "Where to; without it to standard output."},
                      {.name = "ranks",
                       .value = "N",
                       .doc = "Ranks on the node, as threads of a process; without it as many as cores."},
                      {.name = "dtype",
                       .value = "TYPE",
                       .doc = "Of products and activations, bf16 or fp32.",
                       .default_text = "bf16"}},
          .run = calibrate,
          .description =
              "Trains models of several sizes for some steps each, as threads of this process, and times every "
              "operation where it stands in a step; what messages cost is what is missing then. Takes half a minute "
              "to two, more with more ranks than cores, in which the machine should have nothing else to do."},
         {.name = "check",
          .summary = "check a configuration",
          .positionals = {kConfig},
          .options = {kSet, {.name = "dump", .doc = "Prints the resolved configuration, every key with who set it."}},
          .run = check,
          .description = "Reads no data and starts nothing. All problems are reported at once."}},
    .description =
        "Trains GPT and Llama models with tensor, sequence, pipeline and data parallelism, on CPUs; on NVIDIA GPUs it "
        "is not tried yet.",
    .examples = {{.command = "ms-train run configs/tiny-3d.toml", .doc = "Train with eight ranks as threads:"},
                 {.command = "mpirun -np 8 ms-train run configs/tiny-3d.toml", .doc = "The same with eight processes:"},
                 {.command = "ms-train plan configs/gpt-175b.toml",
                  .doc = "Show what a run would need, on any machine:"},
                 {.command = "ms-train plan run.toml --hostfile slurm --order order",
                  .doc = "In a job, place ranks by the switches that Slurm knows:"}},
    .see_also = {"ms-data(1)", "ms.toml(5)", "ms-cluster(5)"},
    .environment = {{"MS_FAULT", watch::fault_manual()}, {"CUDA_*, NCCL_*", train::gpu_environment_manual()}},
    .extra_pages = {{.option = "--man-config", .text = config_manual},
                    {.option = "--man-cluster", .text = cluster_manual}},
    .before_error = comm::let_rank_0_speak};

}  // namespace

int main(int argc, char** argv) { return run_tool(kTool, argc, argv); }
