// One of the commands of train/commands/commands.h: finds the layout that trains fastest.
#include "base/print.h"
#include "base/user_path.h"
#include "train/commands/commands.h"
#include "train/commands/show_tune.h"

namespace ms::train {
namespace {

int run_tune(const Args& args) {
  if (args.has("output")) check_user_file(args.get("output"));
  const Loaded loaded = load(args);
  const cost::Cluster cluster = load_cluster(args);
  const std::int64_t world = args.has("world") ? args.get_int("world", 1, 1 << 20) : ranks_of(loaded.settings);
  TuneOptions options;
  options.patience_s = args.get_seconds("patience");
  const Tuning tuning = tune(loaded.settings, cluster, world, options);
  if (args.has("output"))
    write_user_file(args.get("output"), to_toml(for_devices_of(cluster, tuning.fastest().settings)));
  write_out(args.has("json") ? tuning_json(tuning) : tuning_text(tuning, cluster));
  return 0;
}

}  // namespace

Command tune_command() {
  return {
      .name = "tune",
      .summary = "find the layout that trains fastest on a cluster",
      .positionals = {config_argument()},
      .options = {set_option(),
                  cluster_option(),
                  set_cluster_option(),
                  {"world", "N", "Number of ranks (default: that of [mesh])."},
                  {"output", "FILE",
                   "Write the configuration with the fastest layout to FILE. If no layout is faster, write the given "
                   "configuration. If device.name of the cluster is an A100, A800, H100, H200 or GH200, FILE sets "
                   "run.device to cuda, unless the configuration cannot run on a GPU (train.dtype = \"fp32\")."},
                  {"patience", "TIME", "Time limit for the simulations. Less promising layouts may be left out.",
                   "100s"},
                  json_option()},
      .run = run_tune,
      .description =
          "Tries every layout that fits the devices' memory: tp within a node, pp, chunks, schedule, microbatch, the "
          "overlap of tp, the least recomputation, and optim.zero = 3 where memory is short. Simulates each, the most "
          "promising first. Prints the ten "
          "fastest, if that is faster with fewer layers in the end stages or state sharded within nodes, and why the "
          "others are slower."};
}

}  // namespace ms::train
