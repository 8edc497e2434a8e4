// The training loop of one rank: data in, steps issued one ahead of the one awaited, evaluation, metrics, and at the
// end a few lines that the model writes. Collective over the world.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "comm/world.h"
#include "data/loader_process.h"
#include "train/plan.h"
#include "watch/fault.h"
#include "watch/stop.h"

namespace ms::train {

struct TrainerOptions {
  double peak_flops = 0;                    // of one rank's device, for MFU; 0: MFU is not printed
  watch::Faults faults = {};                // of this rank
  std::string resolved = {};                // the configuration, for checkpoints
  bool fresh = false;                       // checkpoints that are there are set aside
  watch::StopRequest* stop = nullptr;       // of this process
  bool goes_on = false;                     // after a rollback, in the process that made it
  data::LoaderProcess* loader = nullptr;    // of this process; must be there where data is read
  std::chrono::milliseconds deadline = {};  // for peers
  // Tells all others of an error (World::abort); must be there. Called before the engine goes: its streams drain, and
  // what they wait for may never come.
  std::function<void(const Error&)> failed = {};
};

// The result of a run that ends well; the same on every rank, except where noted.
struct Outcome {
  std::int64_t start = 0, steps = 0;  // done before this run began, and when it ended
  bool stopped = false;               // on purpose, before the last step
  bool rolled_back = false;           // stopped by the guard, to begin again with `checkpoint`
  bool asked = false;                 // to stop, as rank 0 knows, whatever the guard did in that step
  std::string stop_cause;             // "SIGTERM"; where another rank was asked, that one knows; the guard's reason
  std::string checkpoint;             // the path of that of the last step; empty: nothing is saved in this run
  std::optional<double> loss;         // of the last step; absent without targets
  std::optional<double> valid_loss;   // likewise, of the last evaluation, on ranks that read data
  double tokens_per_s = 0;
  std::string sample;  // generated text, rank 0 only
};

// `step` follows the loop, for whoever has to say where the run was when it ended.
// `host` sends messages of the host's memory; it may be the device.
Outcome train(const Plan& plan, comm::World& world, tensor::Device& device, tensor::Device& host,
              const TrainerOptions& options, std::atomic<std::int64_t>& step);

}  // namespace ms::train
