// One of the commands of train/commands/commands.h: checks a configuration.
#include "base/print.h"
#include "train/commands/commands.h"
#include "train/plan.h"
#include "train/run/trainer.h"

namespace ms::train {
namespace {

int run_check(const Args& args) {
  const Loaded loaded = load(args);
  make_plan(loaded.settings, static_cast<int>(ranks_of(loaded.settings)));
  if (!args.has("no-files")) check_inputs(loaded, false);
  if (args.has("dump")) {
    write_out(loaded.resolved);
  } else {
    print_out("{}: ok, {} ranks\n", args.get("CONFIG"), ranks_of(loaded.settings));
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
                      {.name = "no-files",
                       .doc = "Does not look for the token files and for checkpoint.load: for machines without them."}},
          .run = run_check,
          .description =
              "Starts nothing, and reports all problems of the configuration at once. Then it opens the token files "
              "and the checkpoint that checkpoint.load names, as a run would."};
}

}  // namespace ms::train
