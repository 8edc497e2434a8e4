#include "health/commands/telemetry_report.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "base/json.h"
#include "base/text.h"
#include "health/commands/history.h"
#include "health/telemetry/columns.h"

namespace ms::health {
namespace {

constexpr std::size_t kMostRises = 5;  // of a column, in the text

std::string device_name(const std::string& device) { return device.empty() ? "host" : device; }

}  // namespace

std::string sample_text(const Sample& sample) {
  TextTable table(columns("DEVICE|COLUMN|VALUE>|UNIT"));
  for (const SampleValue& value : sample.values) {
    table.row({device_name(value.device), value.column, fmt::format("{}", value.value),
               std::string(column_of(value.device, value.column).first)});
  }
  return table.str();
}

std::string sample_json(const std::string& node, const Sample& sample) {
  Json values = Json::object();
  for (const SampleValue& value : sample.values) {
    values[value.device][value.column] = std::isfinite(value.value) ? Json(value.value) : nullptr;
  }
  Json devices = Json::array();
  for (const auto& [device, columns] : values.items()) {
    const auto facts = sample.facts.find(device);
    devices.push_back(
        {{"device", device}, {"facts", facts == sample.facts.end() ? Facts{} : facts->second}, {"values", columns}});
  }
  const Json json{
      {"schema", 1}, {"node", node}, {"time", sample.wall_s}, {"devices", devices}, {"missing", sample.missing}};
  return json.dump(2) + "\n";
}

std::string samples_csv(const Series& series) {
  std::string text;
  for (std::size_t row = 0; row < series.rows(); ++row) {
    for (std::size_t column = 0; column < series.columns.size(); ++column) {
      const float value = series.at(row, column);
      if (std::isnan(value)) continue;
      fmt::format_to(std::back_inserter(text), "{:.0f},{},{},{},{}\n", series.times[row], series.node,
                     device_name(series.device), series.columns[column], value);
    }
  }
  return text;
}

std::string trends_text(const SiteTrends& trends) {
  std::string text = fmt::format("samples of {}, their last day\n", plural(trends.nodes, "node"));
  if (trends.young > 0) {
    text += fmt::format("{} of them {} samples for less than a day: what rises there may not show yet\n", trends.young,
                        trends.young == 1 ? "has" : "have");
  }
  if (trends.rises.empty()) {
    text += "no counter of errors rises\n";
  } else {
    TextTable table(columns("RISES|NODE|DEVICE|LAST DAY>|DAY BEFORE>"));
    std::size_t of_column = 0, left_out = 0;
    for (std::size_t i = 0; i < trends.rises.size(); ++i) {
      const Rise& rise = trends.rises[i];
      of_column = i > 0 && trends.rises[i - 1].column == rise.column ? of_column + 1 : 0;
      if (of_column >= kMostRises) {
        ++left_out;
        continue;
      }
      table.row({rise.column, rise.node, device_name(rise.device), fmt::format("{:.6g}", rise.last_day),
                 rise.day_before ? fmt::format("{:.6g}", *rise.day_before) : "-"});
    }
    text += table.str();
    if (left_out > 0) text += fmt::format("and {} more, see --json\n", left_out);
  }
  if (!trends.hotter.empty()) {
    TextTable table(columns("HOTTER|NODE|DEVICE|STATE|MEDIAN C>|PEERS>"));
    for (const Hotter& hotter : trends.hotter) {
      table.row({hotter.column, hotter.node, hotter.device, hotter.state, fmt::format("{:.0f}", hotter.median),
                 fmt::format("{:.0f}", hotter.peers_median)});
    }
    text += table.str();
  } else if (trends.compared > 0) {
    text += "no GPU is hotter than its peers\n";
  }
  if (trends.not_compared > 0) {
    text += fmt::format("{} not compared: fewer than eight peers, idle or working\n",
                        plural(trends.not_compared, "temperature"));
  }
  for (const auto& [node, newest_s] : trends.silent) {
    text += fmt::format("{}: {}\n", node,
                        newest_s > 0 ? "its last sample is of " + when(newest_s) : "no sample in two days");
  }
  for (const std::string& note : trends.notes) text += "not read: " + note + "\n";
  return text;
}

Json trends_json(const SiteTrends& trends) {
  Json rises = Json::array(), hotter = Json::array(), silent = Json::array();
  for (const Rise& rise : trends.rises) {
    rises.push_back({{"node", rise.node},
                     {"device", device_name(rise.device)},
                     {"column", rise.column},
                     {"unit", rise.unit},
                     {"last_day", rise.last_day},
                     {"day_before", rise.day_before ? Json(*rise.day_before) : Json(nullptr)}});
  }
  for (const Hotter& device : trends.hotter) {
    hotter.push_back({{"node", device.node},
                      {"device", device.device},
                      {"column", device.column},
                      {"state", device.state},
                      {"median", device.median},
                      {"peers_median", device.peers_median},
                      {"peers", device.peers}});
  }
  for (const auto& [node, newest_s] : trends.silent) silent.push_back({{"node", node}, {"newest", newest_s}});
  return {{"nodes", trends.nodes}, {"young", trends.young},       {"rises", rises},
          {"hotter", hotter},      {"compared", trends.compared}, {"not_compared", trends.not_compared},
          {"silent", silent},      {"notes", trends.notes}};
}

}  // namespace ms::health
