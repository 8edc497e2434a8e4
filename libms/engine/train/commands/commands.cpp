#include "train/commands/commands.h"

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "slurm/launch.h"
#include "train/elastic.h"

namespace ms::train {

Positional config_argument() { return {"CONFIG", "The configuration file, ms.toml(5)."}; }
Option set_option() {
  return {.name = "set", .value = "KEY=VALUE", .doc = "Override a key of the configuration.", .many = true};
}
Option inference_set_option() {
  return {
      .name = "set", .value = "KEY=VALUE", .doc = "Override a key of the checkpoint's configuration.", .many = true};
}
Option json_option() { return {"json", "", "Print one JSON document instead of tables."}; }
Option cluster_option() { return {"cluster", "FILE", "The description of the cluster, ms-cluster(5)."}; }
Option set_cluster_option() {
  return {.name = "set-cluster", .value = "KEY=VALUE", .doc = "Override a key of the cluster file.", .many = true};
}

Loaded load(const Args& args, std::optional<std::int64_t> world) {
  Loaded loaded = load(args.get("CONFIG"), args.list("set"), world);
  if (slurm::this_launch().rank != 0) return loaded;
  for (const std::string& warning : loaded.warnings) log::warn("train", "{}", warning);
  const Settings& settings = loaded.settings;
  if (!loaded.dp_sizes.empty()) {
    const std::int64_t dp = settings.mesh.dp, microbatch = settings.train.microbatch;
    log::info("train", "mesh.dp = \"auto\" is {0}, on {1}: {0} x {2} microbatches of {3} a step; it may be {4}", dp,
              plural(static_cast<std::size_t>(ranks_of(settings)), "rank"),
              settings.train.global_batch / (dp * microbatch), microbatch, sizes_text(loaded.dp_sizes));
  }
  return loaded;
}

cost::Cluster load_cluster(const Args& args) {
  if (!args.has("cluster")) {
    throw user_error("cli.value", "--cluster FILE is missing: the simulation needs a description of the machines",
                     "ms-cluster(5) describes such files, and configs/clusters/ has some");
  }
  return cost::load_cluster(args.get("cluster"), args.list("set-cluster"));
}

std::int64_t ranks_of(const Settings& settings) { return settings.mesh.ranks(); }

}  // namespace ms::train
