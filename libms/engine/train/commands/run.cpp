// One of the commands of train/commands/commands.h: trains.
#include <cstdio>

#include "base/log.h"
#include "base/print.h"
#include "base/text.h"
#include "slurm/launch.h"
#include "train/commands/commands.h"
#include "train/run/launch.h"
#include "train/simulate/speed_up.h"

namespace ms::train {
namespace {

void print_outcome(const Loaded& loaded, const Outcome& outcome) {
  if (!outcome.sample.empty()) print_out("The model writes:\n\n{}\n\n", outcome.sample);
  print_out("steps         {}{}\n", outcome.steps, outcome.stopped ? ", stopped on purpose" : "");
  if (outcome.steps > outcome.start) {
    if (outcome.loss) print_out("loss          {:.4f}\n", *outcome.loss);
    if (outcome.valid_loss) print_out("valid_loss    {:.4f}\n", *outcome.valid_loss);
    print_out("tokens_per_s  {:.0f}\n", outcome.tokens_per_s);
  }
  if (!outcome.checkpoint.empty()) print_out("checkpoint    {}\n", outcome.checkpoint);
  print_out("metrics       {}/metrics.jsonl\n", loaded.settings.run.dir);
  std::fflush(stdout);
}

// Says how fast each size of mesh.dp = "auto" would be. Every rank reads the file, so that all refuse a wrong one.
void say_speed(const Loaded& loaded) {
  const std::string& file = loaded.settings.run.cluster;
  if (file.empty()) return;
  const cost::Cluster cluster = cost::load_cluster(file, {});
  if (loaded.dp_sizes.empty() || slurm::this_launch().rank != 0) return;
  for (const SpeedUp& row : speed_ups(loaded.settings, loaded.dp_sizes, cluster)) {
    log::info("train", "dp {}, {}: {}", row.dp, plural(static_cast<std::size_t>(row.ranks), "rank"),
              row.problem.empty() ? fmt::format("{:.0f} tokens/s by simulation", row.tokens_per_s) : row.problem);
  }
}

// The ranks that a run is given: threads by --ranks, or processes.
std::optional<std::int64_t> given_ranks(const Args& args) {
  if (args.has("ranks")) return args.get_int("ranks", 1);
  const slurm::Launch started = slurm::this_launch();
  return started.launcher.empty() ? std::nullopt : std::optional<std::int64_t>(started.size);
}

int run_run(const Args& args) {
  const std::optional<std::int64_t> given = given_ranks(args);
  const Loaded loaded = load(args, given);
  if (!loaded.dp_sizes.empty() && !given) {
    throw user_error("mesh.size", "mesh.dp = \"auto\" needs a number of ranks: there is neither --ranks nor a launcher",
                     fmt::format("--ranks {} runs threads; else start processes with mpirun or srun --mpi=pmix",
                                 ranks_of(loaded.settings)));
  }
  say_speed(loaded);
  const mesh::MeshConfig& mesh = loaded.settings.mesh;
  const std::int64_t ranks = ranks_of(loaded.settings);
  if (args.has("ranks") && args.get_int("ranks", 1) != ranks) {
    throw user_error("mesh.size",
                     fmt::format("--ranks {}, but mesh.dp x mesh.pp x mesh.tp{} = {} x {} x {}{} = {}",
                                 args.get_int("ranks"), mesh.cp > 1 ? " x mesh.cp" : "", mesh.dp, mesh.pp, mesh.tp,
                                 mesh.cp > 1 ? fmt::format(" x {}", mesh.cp) : "", ranks),
                     fmt::format("change [mesh], or use --ranks {}", ranks));
  }
  const slurm::Launch started = slurm::this_launch();
  if (args.has("ranks") && started.size > 1) {
    throw user_error(
        "comm.launch",
        fmt::format("--ranks runs threads of one process, but {} started {} processes", started.launcher, started.size),
        "start one process, or leave --ranks out");
  }
  const auto report = [&loaded](const Outcome& outcome) { print_outcome(loaded, outcome); };
  return static_cast<int>(launch(loaded, {.fresh = args.has("fresh"), .report = report}));
}

}  // namespace

Command run_command() {
  return {
      .name = "run",
      .summary = "train",
      .positionals = {config_argument()},
      .options = {set_option(),
                  {"ranks", "N",
                   "Run N ranks as threads of this process. N must be dp x pp x tp x cp; with mesh.dp = \"auto\", N "
                   "determines dp."},
                  {"fresh", "",
                   "Start at step 0, or from checkpoint.load. Existing checkpoints in checkpoint.dir are set aside."}},
      .run = run_run,
      .description =
          "Under mpirun or srun --mpi=pmix each process is a rank. Without a launcher the ranks are threads of this "
          "process. The run writes config.toml, metrics.jsonl and verdict.json into run.dir.\n\nIf checkpoint.dir has "
          "a complete checkpoint, the run resumes from the newest one; otherwise it starts from checkpoint.load, or at "
          "step 0.\n\nSIGTERM, SIGINT, SIGHUP, SIGUSR2 or a file 'stop' in run.dir stop the run after a step that all "
          "ranks agree on. It saves a checkpoint and exits with status 75, or with 93 if it saves no checkpoints. An "
          "evaluation is interrupted, and its loss is not reported. A second SIGINT ends the run at once.\n\nWith "
          "mesh.dp = \"auto\" the run uses all ranks that were started. Samples and global batch do not depend on the "
          "number of ranks. mesh.dp must become one of the sizes that ms-train check --json prints. "
          "sbatch --nodes=2-8 and ms-driver choose a number of nodes that fits.\n\nWith guard.spike or guard.nonfinite "
          "set to rollback, the run restarts itself from an older checkpoint; under a launcher it exits with 75 "
          "instead. 'mpirun -q' suppresses Open MPI's own message after a failure, so that the run's message is the "
          "last."};
}

}  // namespace ms::train
