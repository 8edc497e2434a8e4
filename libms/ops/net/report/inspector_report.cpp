#include "net/report/inspector_report.h"

#include "base/json.h"
#include "base/text.h"
#include "net/report/report.h"

namespace ms::net {
namespace {

constexpr std::size_t kMostRows = 20;

}  // namespace

std::string inspector_text(const InspectorLog& log, const InspectorJudged& judged) {
  TextTable table(columns("OPERATION|SIZE>|RANKS>|NODES>|GROUPS>|CALLS>|BUS GB/s>|SLOWEST GROUP>|WAITING>"));
  for (std::size_t at = 0; at < std::min(judged.rows.size(), kMostRows); ++at) {
    const InspectorRow& row = judged.rows[at];
    table.row({row.kind, format_size(static_cast<double>(row.size_bytes)), std::to_string(row.ranks),
               std::to_string(row.nodes), std::to_string(row.groups), std::to_string(row.calls),
               fmt::format("{:.4g}", row.bus_gbs), fmt::format("{:.4g}", row.slowest_gbs),
               fmt::format("{:.0f} %", 100 * row.waiting)});
  }
  std::string text = table.str();
  if (judged.rows.size() > kMostRows)
    text += fmt::format("and {} (--json prints all)\n", plural(judged.rows.size() - kMostRows, "further row"));
  return text + findings_text(judged.judged.findings, plural(log.ops().size(), "record"), judged.judged.not_run);
}

std::string inspector_json(const InspectorLog& log, const InspectorJudged& judged) {
  Json json = Json::parse(findings_json("inspector", judged.judged.findings, judged.judged.not_run)),
       rows = Json::array();
  for (const InspectorRow& row : judged.rows) {
    rows.push_back({{"operation", row.kind},
                    {"size_bytes", row.size_bytes},
                    {"ranks", row.ranks},
                    {"nodes", row.nodes},
                    {"groups", row.groups},
                    {"calls", row.calls},
                    {"bus_gbs", row.bus_gbs},
                    {"slowest_group_gbs", row.slowest_gbs},
                    {"waiting", row.waiting}});
  }
  json["records"] = log.ops().size();
  json["processes"] = log.processes().size();
  json["operations"] = std::move(rows);
  return json.dump(2) + "\n";
}

}  // namespace ms::net
