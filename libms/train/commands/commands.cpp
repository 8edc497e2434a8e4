#include "train/commands/commands.h"

#include "base/error.h"
#include "base/log.h"
#include "comm/launch.h"

namespace ms::train {

Positional config_argument() {
  return {.name = "CONFIG", .doc = "The configuration, TOML; ms.toml(5) lists the keys."};
}
Option set_option() {
  return {.name = "set", .value = "KEY=VALUE", .doc = "Sets a key over what the file says.", .many = true};
}
Option inference_set_option() {
  return {.name = "set",
          .value = "KEY=VALUE",
          .doc = "Sets a key over what the checkpoint's configuration says.",
          .many = true};
}
Option json_option() { return {.name = "json", .doc = "One JSON document instead of tables."}; }
Option cluster_option() {
  return {.name = "cluster", .value = "FILE", .doc = "What the machines can do, ms-cluster(5)."};
}
Option set_cluster_option() {
  return {
      .name = "set-cluster", .value = "KEY=VALUE", .doc = "Sets a key over what the cluster file says.", .many = true};
}

Loaded load(const Args& args) {
  Loaded loaded = load(args.get("CONFIG"), args.list("set"));
  if (comm::this_launch().rank == 0) {
    for (const std::string& warning : loaded.warnings) log::warn("train", "{}", warning);
  }
  return loaded;
}

cost::Cluster load_cluster(const Args& args) {
  if (!args.has("cluster")) {
    throw user_error("cli.value", "a step takes as long as the machines need: --cluster FILE says what they can do",
                     "ms-cluster(5) describes such files, and configs/clusters/ has some");
  }
  return cost::load_cluster(args.get("cluster"), args.list("set-cluster"));
}

std::int64_t ranks_of(const Settings& settings) { return settings.mesh.dp * settings.mesh.pp * settings.mesh.tp; }

}  // namespace ms::train
