#include "tracepp/watch/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "base/escape.h"
#include "base/text.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kCurve = 60;   // steps of a curve
constexpr std::size_t kRecent = 50;  // steps of a median

double median_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return kNotWritten;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::vector<double> column(std::span<const StepMetrics> steps, double StepMetrics::*of) {
  std::vector<double> values;
  for (const StepMetrics& step : steps) values.push_back(step.*of);
  return values;
}

std::string number_text(double value) { return std::isfinite(value) ? fmt::format("{:.4f}", value) : "not finite"; }

}  // namespace

std::string sparkline(const std::vector<double>& values, std::size_t most) {
  static constexpr std::array<std::string_view, 8> kBars{"\u2581", "\u2582", "\u2583", "\u2584",
                                                         "\u2585", "\u2586", "\u2587", "\u2588"};
  const std::span<const double> shown = std::span(values).last(std::min(most, values.size()));
  double low = INFINITY, high = -INFINITY;
  for (const double value : shown) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  std::string text;
  for (const double value : shown) {
    if (!std::isfinite(value)) {
      text += ' ';
      continue;
    }
    const double part = high > low ? (value - low) / (high - low) : 0;
    text += kBars[static_cast<std::size_t>(std::clamp(part, 0.0, 1.0) * 7.999)];
  }
  return text;
}

std::string line_text(const StepMetrics& step) {
  std::string text = fmt::format("step {}  loss {}", step.step, number_text(step.loss));
  if (std::isfinite(step.step_s)) text += "  " + format_duration(step.step_s);
  if (std::isfinite(step.tokens_per_s)) text += fmt::format("  {} tokens/s", format_count(step.tokens_per_s));
  if (step.data_wait_s > 0.01 * step.step_s)
    text += fmt::format("  {:.0f} % of it waiting for data", 100 * step.data_wait_s / step.step_s);
  return text + (step.skipped ? "  skipped" : "");
}

std::string screen_text(const Watched& watched) {
  const std::vector<StepMetrics>& steps = watched.metrics.steps;
  std::string text = safe_line(watched.dir) + "\n";
  if (steps.empty()) {
    text += "no step yet\n";
  } else {
    const auto recent = std::span(steps).last(std::min(kRecent, steps.size()));
    text += fmt::format("{}, written {} ago\n", line_text(steps.back()), format_duration(watched.metrics_age_s));
    text += fmt::format("step time  {}  median of {}: {}\n", sparkline(column(steps, &StepMetrics::step_s), kCurve),
                        recent.size(), format_duration(median_of(column(recent, &StepMetrics::step_s))));
    text += fmt::format("loss       {}  median of {}: {}\n", sparkline(column(steps, &StepMetrics::loss), kCurve),
                        recent.size(), number_text(median_of(column(recent, &StepMetrics::loss))));
  }
  if (watched.metrics.not_understood > 0)
    text += fmt::format("{} of metrics.jsonl not understood\n", plural(watched.metrics.not_understood, "line"));
  if (!watched.traces.empty()) text += "\n" + watched.traces;
  return text;
}

}  // namespace ms::tracepp
