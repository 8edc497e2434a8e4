// Reports progress on rank 0: metrics.jsonl and, where wanted, TensorBoard's curves for every step, a log line now and
// then, a progress line on a terminal, and what a step takes against what it should (expectation.h).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/progress.h"
#include "trace/event_file.h"
#include "trace/metrics_file.h"
#include "train/run/expectation.h"
#include "train/run/step_metrics.h"

namespace ms::train {

class Reporter {
 public:
  // `start`: steps that were done before this run began.
  Reporter(const Plan& plan, double peak_flops, std::int64_t start);
  void step(const StepReport& report);
  void close();
  double tokens_per_s() const;  // over the steps so far; the first is left out where there are more

 private:
  // Warns when experts begin to starve.
  void warn_of_experts(const StepReport& report);
  // Calls `write`; a file that cannot be written does not end a run, and is told about once until it can be again.
  void keep(std::int64_t step, const std::function<void()>& write);

  const Plan& plan_;
  RunFacts facts_;
  SystemClock clock_;
  trace::MetricsFile metrics_;
  std::optional<trace::EventFile> curves_;
  std::optional<Progress> progress_;       // on a terminal; elsewhere the log has the lines
  double first_s_ = 0, first_tokens_ = 0;  // of the first step,
  double seconds_ = 0, tokens_ = 0;        // and of those after it
  double line_s_ = 0, line_tokens_ = 0;    // since the line before: a short step by itself says nothing
  std::int64_t steps_ = 0;
  bool starves_ = false;          // an expert did in the last report of loads
  bool drops_ = false;            // likewise, that many tokens of experts are dropped
  std::int64_t not_written_ = 0;  // steps, since when a file could not be written
  std::optional<double> valid_loss_;
  std::string last_note_;
  Expectation expectation_;
};

}  // namespace ms::train
