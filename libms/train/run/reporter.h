// Reports progress on rank 0: metrics.jsonl for every step, a log line now and then, and a progress line on a terminal.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/progress.h"
#include "cost/flops.h"
#include "trace/metrics_file.h"
#include "train/checkpoint/checkpoints.h"

namespace ms::train {

struct StepReport {
  std::int64_t step = 0;  // from 1: steps done
  StepResult result;
  std::int64_t tokens = 0;  // trained on, from the beginning of the data
  double lr = 0;
  double seconds = 0;              // from the end of the step before to the end of this one
  double data_wait_s = 0;          // of which the host waited for tokens
  std::vector<double> op_seconds;  // rank 0's device, by tensor::OpClass, during this step
  std::optional<double> valid_loss;
  std::optional<Origin> resumed;           // in the first step of a resumed run
  bool save_begun = false;                 // the state after this step is being saved
  bool saving = false;                     // a save was under way when this step ended
  std::optional<ckpt::SaveOutcome> saved;  // a save ended during this step
};

class Reporter {
 public:
  // `start`: steps that were done before this run began.
  Reporter(const Plan& plan, double peak_flops, std::int64_t start);
  void step(const StepReport& report);
  void close();
  double tokens_per_s() const;  // over the steps so far; the first is left out where there are more

 private:
  const Plan& plan_;
  cost::FlopsPerToken flops_;
  double peak_flops_;
  trace::MetricsFile metrics_;
  SystemClock clock_;
  std::optional<Progress> progress_;  // on a terminal; elsewhere the log has the lines
  double first_s_ = 0, first_tokens_ = 0;  // of the first step,
  double seconds_ = 0, tokens_ = 0;        // and of those after it
  std::int64_t steps_ = 0;
  std::optional<double> valid_loss_;
  std::string last_note_;
};

}  // namespace ms::train
