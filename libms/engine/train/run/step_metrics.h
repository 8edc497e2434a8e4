// A step's line of metrics.jsonl: its keys, what they mean, and its numbers as TensorBoard's scalars. Pure.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "cost/flops.h"
#include "trace/event_file.h"
#include "train/checkpoint/checkpoints.h"

namespace ms::train {

// Memory while a step ends, as the system and the driver of rank 0's device count it; negative if unknown.
struct MemoryUse {
  std::int64_t process_bytes = -1, process_peak_bytes = -1;  // resident
  tensor::DeviceMemory device;
};
// Parses /proc/self/status.
MemoryUse process_memory(std::string_view status);

struct StepReport {
  std::int64_t step = 0;  // from 1: steps done
  StepResult result;
  std::int64_t step_tokens = 0;  // of the step's batch, which may grow,
  std::int64_t tokens = 0;       // and trained on, from the beginning of the data
  std::string data_chain;        // of the samples trained on; empty: not known
  double lr = 0;
  double seconds = 0;              // from the end of the step before to the end of this one
  double data_wait_s = 0;          // of which the host waited for tokens
  std::vector<double> op_seconds;  // rank 0's device, by tensor::OpClass, during this step
  double tokens_per_s() const { return seconds > 0 ? static_cast<double>(step_tokens) / seconds : 0; }
  MemoryUse memory;
  std::string warning;  // of the guard, for the log; empty: none
  std::optional<double> valid_loss;
  std::optional<Origin> resumed;           // in the first step of a resumed run
  bool save_begun = false;                 // the state after this step is being saved
  bool saving = false;                     // a save was under way when this step ended
  std::optional<ckpt::SaveOutcome> saved;  // a save ended during this step
};

// The numbers of a run that its steps share.
struct RunFacts {
  int ranks = 0;
  cost::FlopsPerToken flops;
  double peak_flops = 0;             // of one rank's device; 0: unknown
  std::int64_t tensor_bytes = 0;     // of the rank that has most
  std::vector<std::string> modules;  // by StepResult::module_norms
  std::int64_t experts = 0;          // of a layer
};

// Returns the loads by layer and expert, 1 being an even share, and no loads of a dense layer; empty in a step without.
std::vector<std::vector<double>> expert_shares(const StepResult& result, std::int64_t experts);

Json step_metrics(const StepReport& report, const RunFacts& run);

// The keys of step_metrics() with what they mean, for the manual.
std::vector<std::pair<std::string, std::string>> metrics_manual();

// The numbers of a line but its step: "train/KEY", and "OBJECT/KEY" of those in an object.
std::vector<trace::Scalar> scalars_of(const Json& metrics);

}  // namespace ms::train
