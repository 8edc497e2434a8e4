#include "train/run/expectation.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/own_tool.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "train/run/tracing.h"

namespace ms::train {
namespace {

constexpr double kChanged = 0.1;     // of a step: a simulation is no more exact than that
constexpr double kDeviations = 3;    // of a median of so many steps
constexpr double kDeadline_s = 600;  // the traces of 10,000 ranks take seconds

double middle_of(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

void say(const std::vector<std::string>& command, std::int64_t step, const std::stop_token& stop) {
  if (stop.stop_requested()) return;
  const SubprocessResult result = run_subprocess(command, {.deadline_s = kDeadline_s}, stop);
  if (stop.stop_requested()) return;
  if (!result.ok()) {
    log::info("train", "the expected time of a step is not known: {}; {}", result.describe(),
              plain_text(result.err, 500));
    return;
  }
  if (const std::string_view sentence = trim(result.out); !sentence.empty())
    log::info("train", "until step {}, {}", step, plain_text(sentence, 1000));
}

}  // namespace

bool StepWindow::add(double seconds) {
  window_.push_back(seconds);
  since_s_ += seconds;
  if (window_.size() < kSteps) return false;
  const double middle = middle_of(window_);
  for (double& value : window_) value = std::abs(value - middle);
  const double spread = 1.4826 * middle_of(window_);  // of normal values their standard deviation
  window_.clear();
  const double error = kDeviations * 1.25 * spread / std::sqrt(static_cast<double>(kSteps));
  if (!said_s_ && since_s_ < least_s_) return false;
  if (said_s_) {
    const bool is_changed = std::abs(middle - *said_s_) > std::max(kChanged * *said_s_, error);
    changed_ = is_changed ? changed_ + 1 : 0;
    if (changed_ < kLasting || since_s_ < kPause_s) return false;
  }
  said_s_ = middle;
  since_s_ = 0;
  changed_ = 0;
  return true;
}

// The first steps must have reached the files of all ranks.
Expectation::Expectation(const Settings& settings) : window_(3 * settings.trace.flush_s) {
  const std::string traces = trace_directory(settings);
  // Beside config.toml, which the simulation needs.
  if (settings.run.cluster.empty() || traces.empty() || !settings.trace.dir.empty()) return;
  command_ = {own_tool("ms-tracepp"), "report", "--brief", "--expected", settings.run.cluster, "--", traces};
  thread_.emplace("expectation", 0);
}

void Expectation::step(std::int64_t step, double seconds) {
  if (command_.empty() || !window_.add(seconds) || thread_->busy()) return;
  thread_->post([command = command_, step](const std::stop_token& stop) { say(command, step, stop); });
}

}  // namespace ms::train
