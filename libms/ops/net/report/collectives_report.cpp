#include "net/report/collectives_report.h"

#include <algorithm>
#include <map>

#include "base/json.h"
#include "base/text.h"

namespace ms::net {
namespace {

constexpr double kStraggles = 2;  // times the middle group of a split
constexpr double kPasses = 0.9;   // of the bandwidth that is asked for, as nccl-tests has it

// "tp 3" is slower than the others of its split, by the middle of all its rows.
void find_slow_groups(const std::vector<CollectiveRow>& rows, std::vector<Finding>& found) {
  std::map<std::pair<std::string, std::size_t>, std::vector<double>> ratios;
  for (const CollectiveRow& row : rows) {
    if (row.group_p50_s.size() < 3) continue;
    std::vector<double> sorted = row.group_p50_s;
    std::ranges::sort(sorted);
    const double middle = sorted[(sorted.size() - 1) / 2];
    for (std::size_t g = 0; g < row.group_p50_s.size(); ++g)
      ratios[{row.split, g}].push_back(row.group_p50_s[g] / middle);
  }
  for (auto& [group, of] : ratios) {
    std::ranges::sort(of);
    const double ratio = of[(of.size() - 1) / 2];
    if (ratio <= kStraggles) continue;
    found.push_back({.code = "net.slow",
                     .severity = Severity::critical,
                     .blame = Blame::fabric,
                     .entity = fmt::format("{} {}", group.first, group.second),
                     .message = fmt::format("takes {:.1f} times as long as the middle one of its kind", ratio),
                     .measured = ratio,
                     .limit = kStraggles,
                     .unit = "times"});
  }
}

}  // namespace

std::vector<Finding> judge_collectives(const std::vector<CollectiveRow>& rows, double least_bus_gbs) {
  std::vector<Finding> found;
  std::map<std::pair<std::string, Collective>, const CollectiveRow*> largest;
  for (const CollectiveRow& row : rows) {
    largest[{row.split, row.what}] = &row;
    if (row.wrong == 0) continue;
    found.push_back({.code = "net.wrong",
                     .severity = Severity::critical,
                     .blame = Blame::fabric,
                     .entity = row.split,
                     .message = fmt::format("{} of {} bytes: {} elements are not what they must be",
                                            to_string(row.what), row.bytes, row.wrong),
                     .measured = static_cast<double>(row.wrong),
                     .limit = 0.0,
                     .unit = "elements"});
  }
  find_slow_groups(rows, found);
  if (least_bus_gbs <= 0 || largest.empty()) return found;
  double sum = 0;
  for (const auto& [key, row] : largest) sum += row->bus_gbs();
  const double average = sum / static_cast<double>(largest.size());
  if (average < kPasses * least_bus_gbs) {
    found.push_back(
        {.code = "net.slow",
         .severity = Severity::critical,
         .blame = Blame::fabric,
         .entity = "collectives",
         .message = fmt::format("{:.3g} GB/s of bus bandwidth on the average of the largest sizes", average),
         .measured = average,
         .limit = kPasses * least_bus_gbs,
         .unit = "GB/s"});
  }
  return found;
}

std::string collectives_text(const std::vector<CollectiveRow>& rows) {
  TextTable table(columns("GROUPS|WHAT|BYTES>|TIMES>|MIN us>|P50 us>|P99 us>|ALG GB/s>|BUS GB/s>|WRONG>"));
  for (const CollectiveRow& row : rows) {
    table.row({row.groups == 1 ? fmt::format("{} of {}", row.split, row.ranks)
                               : fmt::format("{} x {} of {}", row.groups, row.split, row.ranks),
               std::string(to_string(row.what)), std::to_string(row.bytes), std::to_string(row.iterations),
               fmt::format("{:.1f}", row.least_s * 1e6), fmt::format("{:.1f}", row.p50_s * 1e6),
               fmt::format("{:.1f}", row.p99_s * 1e6), fmt::format("{:.3g}", row.algorithm_gbs()),
               fmt::format("{:.3g}", row.bus_gbs()), std::to_string(row.wrong)});
  }
  return table.str();
}

std::string collectives_json(const std::vector<CollectiveRow>& rows, const std::vector<Finding>& findings,
                             const std::vector<std::string>& not_run) {
  Json list = Json::array(), found = Json::array();
  for (const CollectiveRow& row : rows) {
    list.push_back({{"what", to_string(row.what)},
                    {"split", row.split},
                    {"groups", row.groups},
                    {"ranks", row.ranks},
                    {"bytes", row.bytes},
                    {"iterations", row.iterations},
                    {"min_us", row.least_s * 1e6},
                    {"p50_us", row.p50_s * 1e6},
                    {"p99_us", row.p99_s * 1e6},
                    {"algbw_gbs", row.algorithm_gbs()},
                    {"busbw_gbs", row.bus_gbs()},
                    {"wrong", row.wrong},
                    {"group_p50_s", row.group_p50_s}});
  }
  for (const Finding& finding : findings) {
    found.push_back({{"code", finding.code},
                     {"severity", to_string(finding.severity)},
                     {"entity", finding.entity},
                     {"message", finding.message}});
  }
  return Json{{"schema", 1}, {"command", "collectives"}, {"rows", list}, {"findings", found}, {"not_run", not_run}}
             .dump(2) +
         "\n";
}

}  // namespace ms::net
