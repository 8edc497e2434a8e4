// Lemons: nodes that are drained more often than chance explains, beside their peers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "health/act/state.h"

namespace ms::health {

struct SiteRow {
  std::string node;
  int drains = 0;  // that were not withdrawn
  double last_wall_s = 0;
  std::string last_code;
  double by_chance = 0;  // how many nodes of the site would have so many drains if all had the rate of the others
  bool lemon = false;
};

// The nodes with drains since then, most drains first. `nodes`: how many the site has; those without a history count.
std::vector<SiteRow> site_rows(const std::map<std::string, std::vector<HistoryEntry>>& site, std::size_t nodes,
                               double since_wall_s);
std::string site_text(const std::vector<SiteRow>& rows, std::size_t nodes);
Json site_json(const std::vector<SiteRow>& rows, std::size_t nodes);  // {"nodes","drained":[..]}

}  // namespace ms::health
