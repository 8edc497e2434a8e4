#include "health/commands/lemons.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "health/commands/history.h"

namespace ms::health {
namespace {

// A site sees a lemon where there is none in one look of ten, at most.
constexpr double kByChance = 0.1;

// The probability of `count` or more events where `mean` are expected (Poisson).
double at_least(int count, double mean) {
  double term = std::exp(-mean), below = 0;
  for (int i = 0; i < count; ++i) {
    below += term;
    term *= mean / (i + 1);
  }
  return std::max(0.0, 1 - below);
}

}  // namespace

std::vector<SiteRow> site_rows(const std::map<std::string, std::vector<HistoryEntry>>& site, std::size_t nodes,
                               double since_wall_s) {
  std::vector<SiteRow> rows;
  int all = 0;
  for (const auto& [node, entries] : site) {
    SiteRow row{.node = node, .last_code = {}};
    for (const HistoryEntry& entry : entries) {
      if (entry.wall_s < since_wall_s) continue;
      if (entry.event == "withdrawn") row.drains = std::max(0, row.drains - 1);
      if (entry.event != "drain") continue;
      ++row.drains;
      row.last_wall_s = entry.wall_s;
      row.last_code = entry.code;
    }
    all += row.drains;
    if (row.drains > 0) rows.push_back(std::move(row));
  }
  const auto of = static_cast<double>(std::max(nodes, site.size()));
  for (SiteRow& row : rows) {
    // Peers without a drain yet count as one: they may have one later.
    const double mean = of > 1 ? std::max(1, all - row.drains) / (of - 1) : row.drains;
    row.by_chance = of * at_least(row.drains, mean);
    row.lemon = row.by_chance < kByChance;
  }
  std::stable_sort(rows.begin(), rows.end(), [](const SiteRow& a, const SiteRow& b) { return a.drains > b.drains; });
  return rows;
}

std::string site_text(const std::vector<SiteRow>& rows, std::size_t nodes) {
  if (rows.empty()) return fmt::format("none of {} was drained\n", plural(nodes, "node"));
  TextTable table(columns("NODE|DRAINS>|LAST|CODE|BY CHANCE>|"));
  for (const SiteRow& row : rows) {
    table.row({row.node, std::to_string(row.drains), when(row.last_wall_s), row.last_code,
               fmt::format("{:.2g}", row.by_chance), row.lemon ? "lemon" : ""});
  }
  return table.str() + fmt::format("{} of {} were drained; by chance: so many nodes would have that many drains\n",
                                   rows.size(), plural(nodes, "node"));
}

Json site_json(const std::vector<SiteRow>& rows, std::size_t nodes) {
  Json list = Json::array();
  for (const SiteRow& row : rows) {
    list.push_back({{"node", row.node},
                    {"drains", row.drains},
                    {"last", row.last_wall_s},
                    {"code", row.last_code},
                    {"by_chance", row.by_chance},
                    {"lemon", row.lemon}});
  }
  return {{"nodes", nodes}, {"drained", list}};
}

}  // namespace ms::health
