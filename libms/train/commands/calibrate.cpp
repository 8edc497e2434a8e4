// One of the commands of train/commands/commands.h: measures this machine.
#include "train/simulate/calibrate.h"
#include "base/file.h"
#include "base/progress.h"
#include "train/commands/commands.h"

namespace ms::train {
namespace {

int run_calibrate(const Args& args) {
  const std::string dtype = args.get("dtype");
  if (dtype != "bf16" && dtype != "fp32") throw user_error("cli.value", fmt::format("--dtype {}: bf16 or fp32", dtype));
  CalibrateOptions options;
  options.dtype = dtype == "bf16" ? tensor::DType::bf16 : tensor::DType::f32;
  if (args.has("ranks")) options.ranks = static_cast<int>(args.get_int("ranks", 1, 1024));
  SystemClock clock;
  std::optional<Progress> progress;
  options.progress = [&](std::size_t done, std::size_t of) {
    if (!progress) progress.emplace("calibrate", static_cast<std::int64_t>(of), "models", clock);
    progress->update(static_cast<std::int64_t>(done));
  };
  const std::string text = cost::to_toml(calibrate(options));
  progress->finish();
  if (args.has("output")) {
    write_file_atomic(args.get("output"), text);
  } else {
    fmt::print("{}", text);
  }
  return 0;
}

}  // namespace

Command calibrate_command() {
  return {.name = "calibrate",
          .summary = "measure this machine and write a cluster file of it",
          .options = {{.name = "output", .value = "FILE", .doc = "Where to; without it to standard output."},
                      {.name = "ranks",
                       .value = "N",
                       .doc = "Ranks on the node, as threads of a process; without it as many as cores."},
                      {.name = "dtype",
                       .value = "TYPE",
                       .doc = "Of GEMMs and activations, bf16 or fp32.",
                       .default_text = "bf16"}},
          .run = run_calibrate,
          .description =
              "Trains models of several sizes for some steps each, as threads of this process, and times every "
              "operation where it stands in a step; what communication costs is missing then. Takes half a minute "
              "to two, more with more ranks than cores, in which the machine should have nothing else to do."};
}

}  // namespace ms::train
