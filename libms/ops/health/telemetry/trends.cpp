#include "health/telemetry/trends.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "health/evidence/growth.h"
#include "health/telemetry/columns.h"

namespace ms::health {
namespace {

constexpr double kSilent_s = kHour_s;
constexpr double kBusyPercent = 50;
constexpr std::size_t kLeastSamples = 12;
constexpr std::size_t kLeastPeers = 8;
constexpr double kLeastHotter_c = 5;
constexpr double kSpreads = 4;
constexpr double kSigmaOfMad = 1.4826;  // of a normal distribution
constexpr double kRisesBy = 2;

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::optional<std::size_t> column_index(const Series& series, std::string_view name) {
  const auto found = std::find(series.columns.begin(), series.columns.end(), name);
  if (found == series.columns.end()) return std::nullopt;
  return static_cast<std::size_t>(found - series.columns.begin());
}

// By how much a counter grew in from_s < t <= to_s. That it fell is a reset, and no growth.
double growth_between(const Series& series, std::size_t column, double from_s, double to_s) {
  double growth = 0, last = std::nan("");
  for (std::size_t row = 0; row < series.rows(); ++row) {
    const double value = series.at(row, column);
    if (std::isnan(value)) continue;
    const bool inside = series.times[row] > from_s && series.times[row] <= to_s;
    if (inside && value > last) growth += value - last;  // never where last is NaN
    last = value;
  }
  return growth;
}

}  // namespace

void TrendFinder::add_counters(const Series& series) {
  const double newest_s = series.times.back();
  const bool whole_day_before = series.times.front() < newest_s - 2 * kDay_s + kHour_s;
  for (std::size_t column = 0; column < series.columns.size(); ++column) {
    const auto [unit, kind] = column_of(series.device, series.columns[column]);
    if (kind != ColumnKind::errors) continue;
    Rise rise{.node = series.node,
              .device = series.device,
              .column = series.columns[column],
              .unit = std::string(unit),
              .last_day = growth_between(series, column, newest_s - kDay_s, newest_s)};
    if (whole_day_before) {
      rise.day_before = growth_between(series, column, newest_s - 2 * kDay_s, newest_s - kDay_s);
    }
    if (rise.last_day > 0 && rise.last_day >= kRisesBy * rise.day_before.value_or(0)) {
      trends_.rises.push_back(std::move(rise));
    }
  }
}

void TrendFinder::add_temperatures(const Series& series) {
  const auto busy = column_index(series, "busy_percent");
  const auto model = series.facts.find("model");
  if (!busy || model == series.facts.end()) return;
  for (const char* name : {"temperature_c", "memory_temperature_c"}) {
    const auto column = column_index(series, name);
    if (!column) continue;
    std::map<std::string, std::vector<double>> values;
    for (std::size_t row = 0; row < series.rows(); ++row) {
      const float value = series.at(row, *column), share = series.at(row, *busy);
      if (series.times[row] <= now_s_ - kDay_s || std::isnan(value) || std::isnan(share)) continue;
      values[share >= kBusyPercent ? "working" : "idle"].push_back(value);
    }
    for (const auto& [state, seen] : values) {
      if (seen.size() < kLeastSamples) continue;
      temperatures_[{model->second, {name, state}}].push_back({series.node, series.device, median_of(seen)});
    }
  }
}

void TrendFinder::add(const std::string& node, const std::vector<Series>& all) {
  double oldest_s = now_s_, newest_s = 0;
  for (const Series& series : all) {
    oldest_s = std::min(oldest_s, series.times.front());
    newest_s = std::max(newest_s, series.times.back());
    add_counters(series);
    add_temperatures(series);
  }
  if (!all.empty()) ++trends_.nodes;
  if (!all.empty() && oldest_s > newest_s - kDay_s + kHour_s) ++trends_.young;
  if (newest_s < now_s_ - kSilent_s) trends_.silent.emplace_back(node, newest_s);
}

SiteTrends TrendFinder::finish() && {
  for (const auto& [key, devices] : temperatures_) {
    if (devices.size() <= kLeastPeers) {
      trends_.not_compared += devices.size();
      continue;
    }
    trends_.compared += devices.size();
    std::vector<double> medians, deviations;
    for (const Temperature& device : devices) medians.push_back(device.median);
    const double usual = median_of(medians);
    for (const double median : medians) deviations.push_back(std::abs(median - usual));
    const double most = usual + std::max(kLeastHotter_c, kSpreads * kSigmaOfMad * median_of(deviations));
    for (const Temperature& device : devices) {
      if (device.median <= most) continue;
      trends_.hotter.push_back({.node = device.node,
                                .device = device.device,
                                .column = key.second.first,
                                .state = key.second.second,
                                .median = device.median,
                                .peers_median = usual,
                                .peers = devices.size() - 1});
    }
  }
  std::stable_sort(trends_.rises.begin(), trends_.rises.end(), [](const Rise& a, const Rise& b) {
    return a.column != b.column ? a.column < b.column : a.last_day > b.last_day;
  });
  return std::move(trends_);
}

SiteTrends site_trends(const std::string& directory, double now_s) {
  TrendFinder finder(now_s);
  std::vector<std::string> notes;
  for (const std::string& node : telemetry_nodes(directory)) {
    try {
      finder.add(node, read_telemetry(directory, node, now_s - 2 * kDay_s, now_s + kHour_s, &notes));
    } catch (const Error& error) { notes.push_back(error.message()); }
  }
  SiteTrends trends = std::move(finder).finish();
  trends.notes = std::move(notes);
  return trends;
}

}  // namespace ms::health
