// One of the commands of train/commands/commands.h: checks a configuration.
#include "base/error.h"
#include "base/json.h"
#include "base/print.h"
#include "base/text.h"
#include "train/commands/commands.h"
#include "train/elastic.h"
#include "train/plan.h"
#include "train/run/inputs.h"
#include "train/simulate/speed_up.h"

namespace ms::train {
namespace {

int run_check(const Args& args) {
  if (args.has("speeds") && !args.has("json")) throw user_error("cli.value", "--speeds needs --json");
  const Loaded loaded = load(args);
  make_plan(loaded.settings, static_cast<int>(ranks_of(loaded.settings)));
  if (!args.has("no-files")) check_inputs(loaded, false);
  const mesh::MeshConfig& mesh = loaded.settings.mesh;
  if (args.has("json")) {
    Json json{{"schema", 1},
              {"dp", mesh.dp},
              {"auto", !loaded.dp_sizes.empty()},
              {"replica_ranks", mesh.replica_ranks()},
              {"allowed_dp", Json::array()}};
    const std::vector<std::int64_t> sizes = allowed_dp(loaded.settings);
    for (const std::int64_t dp : sizes) json["allowed_dp"].push_back(dp);
    if (args.has("speeds") && !loaded.settings.run.cluster.empty()) {
      const cost::Cluster cluster = cost::load_cluster(loaded.settings.run.cluster, {});
      json["speed_up"] = Json::array();
      for (const SpeedUp& size : speed_ups(loaded.settings, sizes, cluster)) {
        if (size.problem.empty()) json["speed_up"].push_back({{"dp", size.dp}, {"tokens_per_s", size.tokens_per_s}});
      }
    }
    write_out(json.dump(2) + "\n");
  } else if (args.has("dump")) {
    write_out(loaded.resolved);
  } else {
    print_out("{}: ok, {}\n", args.get("CONFIG"), plural(ranks_of(loaded.settings), "rank"));
  }
  return 0;
}

}  // namespace

Command check_command() {
  return {.name = "check",
          .summary = "check a configuration",
          .positionals = {config_argument()},
          .options = {set_option(),
                      {"dump", "", "Print the resolved configuration, with the origin of every key."},
                      {"json", "",
                       "Print the data-parallel sizes from mesh.dp_min to mesh.dp_max that the global batch allows, as "
                       "JSON. ms-driver reads it."},
                      {"speeds", "",
                       "With --json: also print the speed of each size, simulated on the machines of run.cluster. "
                       "ms-driver passes it to ms-loan."},
                      {"no-files", "",
                       "Do not open the token files or checkpoint.load. Use this on machines without them."}},
          .run = run_check,
          .description =
              "Reports all problems of the configuration at once, without starting a run. Then opens the token files "
              "and the checkpoint in checkpoint.load, as a run would."};
}

}  // namespace ms::train
