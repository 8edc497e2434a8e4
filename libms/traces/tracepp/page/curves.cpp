#include "tracepp/page/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/html.h"
#include "base/text.h"
#include "tracepp/read/run_metrics.h"
#include "tracepp/robust.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kMostName = 200;  // bytes of a directory's name on a page

MetricsTail read_all_metrics(const std::string& path) {
  constexpr std::size_t kChunk = std::size_t{4} << 20, kMostLine = std::size_t{16} << 20;
  const MappedFile file(path);
  MetricsTail all;
  std::string text;
  for (std::size_t at = 0; at < file.size_bytes();) {
    const std::size_t size = std::min(kChunk, file.size_bytes() - at), held = text.size();
    text.resize(held + size);
    file.read(at, std::as_writable_bytes(std::span(text).subspan(held)));
    at += size;
    const std::size_t end = text.rfind('\n');
    if (end == std::string::npos) {
      if (text.size() > kMostLine) ++all.not_understood, text.clear();
      continue;
    }
    const MetricsTail some = parse_metrics(std::string_view(text).substr(0, end + 1), false);
    all.steps.insert(all.steps.end(), some.steps.begin(), some.steps.end());
    all.not_understood += some.not_understood;
    text.erase(0, end + 1);
  }
  return all;
}

constexpr std::array kCurveColumns{std::pair{"loss", &StepMetrics::loss}, std::pair{"step_s", &StepMetrics::step_s},
                                   std::pair{"rate", &StepMetrics::tokens_per_s}};

double median_of_finite(std::span<const StepMetrics> steps, double StepMetrics::*of) {
  std::vector<double> values;
  for (const StepMetrics& step : steps)
    if (std::isfinite(step.*of)) values.push_back(step.*of);
  return values.empty() ? kNotWritten : median(values);
}

// The cells of a run's row.
std::array<std::string, 4> cells_of_run(const Curve& curve) {
  const auto known = [](double value, auto text) { return std::isfinite(value) ? text(value) : std::string("-"); };
  const double loss = curve.points.empty() ? kNotWritten : curve.points.back().loss;
  return {std::to_string(curve.steps), known(loss, [](double value) { return fmt::format("{:.4f}", value); }),
          known(curve.median_step_s, [](double value) { return format_duration(value); }),
          known(curve.median_tokens_per_s, [](double value) { return format_count(value); })};
}

}  // namespace

NamedRuns named_runs(const std::vector<std::string>& paths) {
  NamedRuns named;
  for (const std::string& path : paths) {
    const bool is_run = !metrics_of_run(path).empty();
    if (is_run) named.runs.push_back(path);
    if (!is_run || &path == &paths.front()) named.traces.push_back(path);
  }
  return named;
}

std::vector<StepMetrics> thinned(const std::vector<StepMetrics>& steps) {
  const std::size_t together = (steps.size() + kMostPoints - 1) / kMostPoints;
  if (together <= 1) return steps;
  std::vector<StepMetrics> points;
  for (std::size_t begin = 0; begin < steps.size(); begin += together) {
    const auto some = std::span(steps).subspan(begin, std::min(together, steps.size() - begin));
    StepMetrics point{.step = some.back().step};
    for (const auto& [name, of] : kCurveColumns) {
      double sum = 0, count = 0;
      for (const StepMetrics& step : some)
        if (std::isfinite(step.*of)) sum += step.*of, ++count;
      if (count > 0) point.*of = sum / count;
    }
    points.push_back(point);
  }
  return points;
}

std::vector<Curve> read_curves(const std::vector<std::string>& runs) {
  std::vector<Curve> curves;
  for (const std::string& run : runs) {
    const MetricsTail all = read_all_metrics(metrics_of_run(run));
    curves.push_back({.dir = run,
                      .points = thinned(all.steps),
                      .steps = all.steps.size(),
                      .median_step_s = median_of_finite(all.steps, &StepMetrics::step_s),
                      .median_tokens_per_s = median_of_finite(all.steps, &StepMetrics::tokens_per_s),
                      .not_understood = all.not_understood});
  }
  return curves;
}

Json curves_data(const std::vector<Curve>& curves, Columns& columns) {
  Json list = Json::array();
  for (const Curve& curve : curves) {
    if (curve.points.empty()) continue;
    const std::string prefix = fmt::format("curve{}.", list.size());
    std::vector<double> numbers;
    for (const StepMetrics& point : curve.points) numbers.push_back(static_cast<double>(point.step));
    columns.add(prefix + "step", std::span<const double>(numbers));
    for (const auto& [name, of] : kCurveColumns) {
      std::vector<float> values;
      for (const StepMetrics& point : curve.points) values.push_back(static_cast<float>(point.*of));
      columns.add(prefix + name, std::span<const float>(values));
    }
    list.push_back({{"name", plain_text(curve.dir, kMostName)}, {"column", prefix}});
  }
  return list;
}

std::string curves_text(const std::vector<Curve>& curves) {
  if (curves.empty()) return "";
  TextTable table(columns("run|steps>|last loss>|median step>|tokens/s>"));
  std::string notes;
  for (const Curve& curve : curves) {
    const auto [steps, loss, step, rate] = cells_of_run(curve);
    table.row({plain_text(curve.dir, kMostName), steps, loss, step, rate});
    if (curve.not_understood > 0)
      notes += fmt::format("{} of {}/metrics.jsonl cannot be parsed\n", plural(curve.not_understood, "line"),
                           plain_text(curve.dir, kMostName));
  }
  return table.str() + notes;
}

std::string curves_html(const std::vector<Curve>& curves) {
  if (curves.empty()) return "";
  std::string html =
      "<table>\n<tr><th>run</th><th>steps</th><th>last loss</th><th>median step</th><th>tokens/s</th></tr>\n";
  for (const Curve& curve : curves) {
    const auto [steps, loss, step, rate] = cells_of_run(curve);
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                        page_text(curve.dir, kMostName), steps, loss, step, rate);
  }
  return html + "</table>\n";
}

}  // namespace ms::tracepp
