// One of the commands of train/commands/commands.h: checks a configuration.
#include "base/json.h"
#include "base/print.h"
#include "base/text.h"
#include "train/commands/commands.h"
#include "train/elastic.h"
#include "train/plan.h"
#include "train/run/trainer.h"

namespace ms::train {
namespace {

int run_check(const Args& args) {
  const Loaded loaded = load(args);
  make_plan(loaded.settings, static_cast<int>(ranks_of(loaded.settings)));
  if (!args.has("no-files")) check_inputs(loaded, false);
  const mesh::MeshConfig& mesh = loaded.settings.mesh;
  if (args.has("json")) {
    Json json{{"schema", 1},
              {"dp", mesh.dp},
              {"auto", !loaded.dp_sizes.empty()},
              {"replica_ranks", mesh.pp * mesh.tp},
              {"allowed_dp", Json::array()}};
    for (const std::int64_t dp : allowed_dp(loaded.settings)) json["allowed_dp"].push_back(dp);
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
                      {.name = "dump", .doc = "Prints the resolved configuration, every key with who set it."},
                      {.name = "json",
                       .doc = "Prints the data-parallel sizes from mesh.dp_min to mesh.dp_max that the configuration "
                              "allows with its global batch, which ms-driver reads."},
                      {.name = "no-files",
                       .doc = "Does not look for the token files and for checkpoint.load: for machines without them."}},
          .run = run_check,
          .description =
              "Starts nothing, and reports all problems of the configuration at once. Then it opens the token files "
              "and the checkpoint that checkpoint.load names, as a run would."};
}

}  // namespace ms::train
