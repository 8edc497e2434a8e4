// One of the commands of train/commands/commands.h: measures this machine.
#include "train/simulate/calibrate.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/print.h"
#include "base/progress.h"
#include "base/user_path.h"
#include "train/commands/commands.h"
#include "train/simulate/calibration_check.h"

namespace ms::train {
namespace {

constexpr std::chrono::seconds kPause{5};  // before the next try

struct Measured {
  cost::Cluster cluster;
  std::vector<std::string> doubts;
};

void log_doubts(const Measured& measured) {
  for (const std::string& doubt : measured.doubts) log::warn("train", "{}", doubt);
}

Measured measure(CalibrateOptions options) {
  const OtherWork others;
  SystemClock clock;
  std::optional<Progress> progress;
  options.progress = [&](std::size_t done, std::size_t of) {
    if (!progress) progress.emplace("calibrate", static_cast<std::int64_t>(of), "models", clock);
    progress->update(static_cast<std::int64_t>(done));
  };
  Measured measured{.cluster = calibrate(options), .doubts = {}};
  progress->finish();
  measured.doubts = doubts(measured.cluster.device, others.part());
  return measured;
}

// Measures unless others are at work already: a measurement takes a minute, and looking a second.
Measured measure_if_quiet(const CalibrateOptions& options) {
  const OtherWork others;
  std::this_thread::sleep_for(std::chrono::seconds(1));
  std::vector<std::string> busy = doubts({}, others.part());
  return busy.empty() ? measure(options) : Measured{.cluster = {}, .doubts = std::move(busy)};
}

// Tries again, as other work of the machine may be over by then.
cost::Cluster measure_until_sound(const CalibrateOptions& options) {
  constexpr int kTries = 3;
  for (int i = 1;; ++i) {
    Measured measured = measure_if_quiet(options);
    if (measured.doubts.empty()) return std::move(measured.cluster);
    log_doubts(measured);
    if (i == kTries) break;
    log::info("train", "trying again in {} s", kPause.count());
    std::this_thread::sleep_for(kPause);
  }
  throw user_error("calibrate.noise", fmt::format("all {} measurements were doubtful", kTries),
                   "calibrate when nothing else runs here; --busy accepts a doubtful measurement");
}

cost::Cluster measure_once(const CalibrateOptions& options) {
  Measured measured = measure(options);
  log_doubts(measured);
  return std::move(measured.cluster);
}

int run_calibrate(const Args& args) {
  const std::string dtype = args.get("dtype");
  if (dtype != "bf16" && dtype != "fp32") throw user_error("cli.value", fmt::format("--dtype {}: bf16 or fp32", dtype));
  if (args.has("output")) check_user_file(args.get("output"));
  CalibrateOptions options;
  options.dtype = dtype == "bf16" ? tensor::DType::bf16 : tensor::DType::f32;
  if (args.has("ranks")) options.ranks = static_cast<int>(args.get_int("ranks", 1, 1024));
  const std::string text = cost::to_toml(args.has("busy") ? measure_once(options) : measure_until_sound(options));
  if (args.has("output")) {
    write_user_file(args.get("output"), text);
  } else {
    write_out(text);
  }
  return 0;
}

}  // namespace

Command calibrate_command() {
  return {
      .name = "calibrate",
      .summary = "measure this machine and write a cluster file for it",
      .options = {{"output", "FILE", "The file to write (default: standard output)."},
                  {"ranks", "N", "Number of ranks on the node, as threads of a process (default: one per core)."},
                  {"dtype", "bf16|fp32", "Data type of GEMMs and activations.", "bf16"},
                  {"busy", "", "Measure once, even if the machine is busy. Write doubtful results with a warning."}},
      .run = run_calibrate,
      .description =
          "Trains models of several sizes for some steps each, as threads of this process, and times every operation "
          "within a step. The cost of communication is not measured. Takes 30 s to 2 min, and longer with more ranks "
          "than cores; the machine should be idle meanwhile. A measurement is doubtful if other processes used the "
          "cores, or if a larger operation took less time, or reached much less of the peak, than a smaller one. It is "
          "repeated up to three times and then refused."};
}

}  // namespace ms::train
