// Implements measures_data and hang_data of page.h: what is known of every rank.
#include <fmt/format.h>

#include <map>

#include "base/escape.h"
#include "tracepp/hang/blame.h"
#include "tracepp/heat/measures.h"
#include "tracepp/page/page.h"

namespace ms::tracepp {
namespace {

// Numbers the distinct texts of a page, each shortened.
class Texts {
 public:
  std::uint32_t id(std::string_view text) {
    constexpr std::size_t kMostBytes = 300;
    std::string shown(text.substr(0, kMostBytes));
    if (shown.size() < text.size()) {
      shown.resize(whole_utf8_bytes(shown));
      shown += "...";
    }
    const auto [at, is_new] = ids_.try_emplace(safe_line(shown), static_cast<std::uint32_t>(list_.size()));
    if (is_new) list_.push_back(at->first);
    return at->second;
  }
  const Json& list() const { return list_; }

 private:
  std::map<std::string, std::uint32_t, std::less<>> ids_;
  Json list_ = Json::array();
};

}  // namespace

Json measures_data(const RunTrace& trace, const Analysis& analysis, Columns& columns) {
  const std::vector<Measure> measures = measures_of(trace, analysis.breakdown);
  Json list = Json::array();
  for (const Measure& measure : measures) {
    const std::string column = fmt::format("measure{}", list.size());
    columns.add(column, std::span<const float>(measure.values));
    columns.add(column + ".medians", std::span<const float>(measure.medians));
    list.push_back({{"name", measure.name}, {"part", measure.is_part}, {"column", column}});
  }
  Json maps = Json::array();
  for (const MeshMap& map : mesh_maps(trace, measures)) {
    columns.add(fmt::format("cells.{}", map.role), std::span<const float>(map.cells));
    maps.push_back(
        {{"role", map.role}, {"low", map.low}, {"middle", map.middle}, {"high", map.high}, {"full", map.full}});
  }

  Texts texts;
  std::vector<std::int32_t> numbers;
  std::vector<std::uint32_t> hosts, errors;
  for (const RankTrace& rank : trace.ranks) {
    numbers.push_back(rank.rank);
    hosts.push_back(texts.id(rank.host));
    errors.push_back(texts.id(has_error(rank.ending) ? rank.ending_text : to_string(rank.ending)));
  }
  columns.add("ranks", std::span<const std::int32_t>(numbers));
  columns.add("hosts", std::span<const std::uint32_t>(hosts));
  columns.add("endings", std::span<const std::uint32_t>(errors));
  return {{"measures", std::move(list)},
          {"full_difference", full_difference(measures, analysis.effective.median_step_s)},
          {"maps", std::move(maps)},
          {"texts", texts.list()}};
}

Json hang_data(const RunTrace& trace, const Hang& hang, Columns& columns) {
  if (hang.state == RunState::ended || hang.state == RunState::cut_off) return nullptr;
  const HangScan scan(trace);
  Texts texts;
  std::vector<std::uint32_t> last;
  for (std::size_t r = 0; r < scan.count(); ++r) last.push_back(texts.id(doing(scan, r)));
  columns.add("last", std::span<const std::uint32_t>(last));
  std::vector<std::uint8_t> cells;
  for (const Cell cell : hang.cells) cells.push_back(static_cast<std::uint8_t>(cell));
  columns.add("cells", std::span<const std::uint8_t>(cells));
  return {{"state", to_string(hang.state)}, {"texts", texts.list()}};
}

}  // namespace ms::tracepp
