#include "predict/dataset.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <unordered_map>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "health/telemetry/columns.h"
#include "health/telemetry/series.h"
#include "unpack/csv.h"
#include "unpack/input_file.h"

namespace ms::predict {
namespace {

using unpack::CsvTable;

constexpr std::size_t kMaxKinds = 64;
constexpr std::size_t kMaxMetrics = 256;
constexpr std::size_t kMaxBins = 20000;
constexpr std::size_t kMaxCells = std::size_t{1} << 29;  // of telemetry: units x metrics x bins

struct Sums {
  double sum = 0;
  float peak = 0;
  std::int64_t count = 0;
};

struct Gathered {
  std::vector<Stay> stays = {};
  std::vector<Fault> faults = {};
  std::unordered_map<std::uint64_t, Sums> sums = {};  // metric << 32 | bin since day 0
  std::array<bool, 3> in = {};                        // by Source
};

enum Source : std::uint8_t { in_faults, in_nodes, in_telemetry };
constexpr std::array<std::string_view, 3> kOptions{"--faults", "--nodes", "--telemetry"};
constexpr std::size_t kUnknownIn = 20;  // of so many units one may be unknown
constexpr double kMostCounted = 1e6;

// How many units there are, where a number stands for their table.
std::optional<std::size_t> count_of(const std::string& nodes) {
  const std::optional<double> count = unpack::parse_number(nodes);
  if (!count) return std::nullopt;
  if (*count >= 1 && *count <= kMostCounted) return static_cast<std::size_t>(*count);
  throw user_error("predict.units", fmt::format("--nodes {}: from 1 to {:.0f} units", nodes, kMostCounted));
}

// Reads no pipe, for which it might wait for ever, and no device, which has no end.
const std::string& regular(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    throw user_error("data.input", fmt::format("{} is no regular file", path), "write it to a file first");
  }
  return path;
}

class Reader {
 public:
  explicit Reader(double bin_days) { data_.bin_days = bin_days; }

  void faults(const std::string& path) {
    source_ = in_faults;
    regular(path);
    if (trim(unpack::InputFile(path).next()).starts_with('[')) return trace_json(path);
    const CsvTable table(path);
    lives_ = table.find({"SN"}) && table.find({"insert"});
    lives_ ? lives(table) : fault_rows(table);
  }

  void nodes(const std::string& path) {
    source_ = in_nodes;
    const CsvTable table(regular(path));
    const std::size_t node = table.column({"node", "node_id", "name"});
    const auto first = table.find({"first"}), last = table.find({"last"});
    std::vector<std::size_t> columns;
    for (std::size_t c = 0; c < table.columns().size(); ++c) {
      if (c == node || c == first || c == last) continue;
      columns.push_back(c);
      data_.facts.push_back(table.columns()[c]);
    }
    if (data_.facts.size() > kMaxNames) {
      throw user_error("data.input", fmt::format("{} has {} columns of facts", path, data_.facts.size()),
                       fmt::format("at most {}", kMaxNames));
    }
    std::vector<std::map<std::string, float, std::less<>>> words(columns.size());
    for (std::size_t row = 0; row < table.rows(); ++row) {
      // A date in this table is no observation: it may lie ahead.
      Stay stay{.begin_day = first ? table.time_s(row, *first) / kDay_s : -std::numeric_limits<double>::infinity(),
                .end_day = last ? table.time_s(row, *last) / kDay_s : std::numeric_limits<double>::infinity()};
      if (stay.end_day < stay.begin_day) table.refuse(row, *last, "is before its first");
      for (std::size_t c = 0; c < columns.size(); ++c) {
        const std::string_view cell = table.cell(row, columns[c]);
        const std::optional<double> number = unpack::parse_number(cell);
        stay.facts.push_back(cell.empty() ? kUnknown
                             : number     ? static_cast<float>(std::clamp(*number, -kMostValue, kMostValue))
                                          : words[c].try_emplace(std::string(cell), words[c].size()).first->second);
      }
      unit(table.cell(row, node)).stays.push_back(std::move(stay));
    }
  }

  void telemetry(const std::string& path) {
    source_ = in_telemetry;
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return collected(path);
    const CsvTable table(regular(path));
    const std::size_t node = table.column({"node"}), time = table.column({"time"});
    const std::size_t metric = table.column({"metric"}), value = table.column({"value"});
    const auto device = table.find({"device"});  // as ms-diag history prints samples
    std::unordered_map<std::string, float> before;
    for (std::size_t row = 0; row < table.rows(); ++row) {
      if (table.cell(row, value).empty()) continue;
      const std::string_view name = table.cell(row, node), what = table.cell(row, metric);
      const double at = day(table, row, time), number = table.number(row, value, -kMostValue, kMostValue);
      if (!device) {
        sample(unit(name), number_of(data_.metrics, what, kMaxMetrics, "metrics"), at, number);
        continue;
      }
      const std::string_view of = table.cell(row, *device);
      float& last = before.try_emplace(fmt::format("{},{},{}", name, of, what), kUnknown).first->second;
      reading(unit(name), of, what, at, static_cast<float>(number), last);
    }
  }

  Dataset finish(std::optional<std::size_t> count);

 private:
  static constexpr double kMostValue = std::numeric_limits<float>::max();

  Gathered& unit(std::string_view name) {
    Gathered& found = units_.try_emplace(std::string(name)).first->second;
    found.in[source_] = true;
    return found;
  }
  std::vector<std::string> names(Source in, std::optional<Source> and_not = {}) const {
    std::vector<std::string> out;
    for (const auto& [name, gathered] : units_) {
      if (gathered.in[in] && !(and_not && gathered.in[*and_not])) out.push_back(name);
    }
    return out;
  }
  void know_units(std::optional<std::size_t> count);

  static std::uint32_t number_of(std::vector<std::string>& names, std::string_view name, std::size_t most,
                                 std::string_view what) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end() && names.size() == most) {
      throw user_error("data.input", fmt::format("there are more than {} {}", most, what),
                       "is the right column named so?");
    }
    const auto number = static_cast<std::uint32_t>(found - names.begin());
    if (found == names.end()) names.emplace_back(name);
    return number;
  }
  std::uint32_t kind(std::string_view name) { return number_of(data_.kinds, name, kMaxKinds, "kinds of faults"); }

  double seen(double day) {
    first_ = std::min(first_, day);
    last_ = std::max(last_, day);
    return day;
  }
  double day(const CsvTable& table, std::size_t row, std::size_t column) {
    return seen(table.time_s(row, column) / kDay_s);
  }

  void sample(Gathered& unit, std::uint32_t metric, double day, double value) {
    const auto bin = static_cast<std::int64_t>(std::floor(day / data_.bin_days));
    Sums& sums = unit.sums[std::uint64_t{metric} << 32 | static_cast<std::uint32_t>(bin + kZeroBin)];
    sums.peak = sums.count == 0 ? static_cast<float>(value) : std::max(sums.peak, static_cast<float>(value));
    sums.sum += value;
    ++sums.count;
    ++data_.samples;
  }

  void fault_rows(const CsvTable& table) {
    const std::size_t node = table.column({"node", "node_id"}), time = table.column({"time"});
    const std::size_t name = table.column({"kind", "event"});
    const auto end = table.find({"end"});
    for (std::size_t row = 0; row < table.rows(); ++row) {
      const double at = day(table, row, time);
      const bool ended = end && !table.cell(row, *end).empty();
      // An end may be a plan: the data reach no further for it.
      const double end_day = ended ? table.time_s(row, *end) / kDay_s : at;
      if (end_day < at) table.refuse(row, *end, "is before its time");
      unit(table.cell(row, node))
          .faults.push_back({.day = at, .end_day = end_day, .kind = kind(table.cell(row, name))});
    }
  }

  void lives(const CsvTable& table) {
    constexpr std::array<const char*, 5> kFacts{"column", "row", "cage", "slot", "place"};
    data_.facts.assign(kFacts.begin(), kFacts.end());
    const std::size_t serial = table.column({"SN"}), location = table.column({"location"});
    const std::size_t insert = table.column({"insert"}), remove = table.column({"remove"});
    const std::size_t event = table.column({"event"});
    for (std::size_t row = 0; row < table.rows(); ++row) {
      Gathered& gpu = unit(table.cell(row, serial));
      const double end = day(table, row, remove);
      if (!table.cell(row, event).empty()) {
        gpu.faults.push_back({.day = end, .end_day = end, .kind = kind(table.cell(row, event))});
      }
      if (table.cell(row, insert).empty()) continue;
      Stay stay{
          .begin_day = day(table, row, insert), .end_day = end, .facts = std::vector<float>(kFacts.size(), kUnknown)};
      // "c11-2c1s4n1"
      std::array<int, kFacts.size()> place{};
      const std::string text(table.cell(row, location));
      if (std::sscanf(text.c_str(), "c%3d-%3dc%3ds%3dn%3d", &place[0], &place[1], &place[2], &place[3], &place[4]) ==
          5) {
        std::copy(place.begin(), place.end(), stay.facts.begin());
      }
      gpu.stays.push_back(std::move(stay));
    }
  }

  void trace_json(const std::string& path);
  void collected(const std::string& directory);
  void add(Gathered& unit, const health::Series& series);
  void reading(Gathered& unit, std::string_view device, std::string_view column, double day, float value,
               float& before);

  static constexpr std::int64_t kZeroBin = std::int64_t{1} << 30;  // bins before day 0 count, too
  Dataset data_;
  std::map<std::string, Gathered, std::less<>> units_;
  Source source_ = in_faults;  // of what is being read
  bool lives_ = false;         // the file of faults has all units
  double first_ = std::numeric_limits<double>::infinity(), last_ = -std::numeric_limits<double>::infinity();
};

void Reader::trace_json(const std::string& path) {
  unpack::InputFile file(path);
  std::string text;
  for (std::string_view piece = file.next(); !piece.empty(); piece = file.next()) text += piece;
  std::map<std::pair<std::string, std::uint32_t>, std::size_t> open;  // the fault that has not ended
  try {
    for (const Json& row : Json::parse(text)) {
      const std::string node = row.get<std::string>("node_id");
      const std::uint32_t what = kind(row.at("fault_type").get<std::string>("Class"));
      const double at = row.get<double>("event_time");
      if (!std::isfinite(at) || std::abs(at) > 1e6) throw JsonError("event_time is no day");
      std::vector<Fault>& faults = unit(node).faults;
      if (row.get<std::string>("event_type") == "fault_start") {
        open[{node, what}] = faults.size();
        faults.push_back({.day = seen(at), .end_day = std::numeric_limits<double>::infinity(), .kind = what});
      } else if (const auto begun = open.find({node, what}); begun != open.end()) {
        faults[begun->second].end_day = std::max(faults[begun->second].day, seen(at));
        open.erase(begun);
      }
    }
  } catch (const JsonError& error) {
    throw user_error("data.input", fmt::format("{}: {}", path, error.what()),
                     "a list of faults as InfiniteHBD-Trace has it, or a CSV with node, time and kind");
  }
}

void Reader::collected(const std::string& directory) {
  constexpr double kBefore_days = 90;  // of the first fault: the longest window of a feature
  constexpr double kSpan_days = 30;
  const double faults_from = std::isfinite(first_) ? first_ : 0;
  const double until_s = SystemClock().wall_s();
  for (const std::string& node : health::telemetry_nodes(directory)) {
    // A month at a time, so that memory is bounded.
    for (double from_s = (faults_from - kBefore_days) * kDay_s; from_s < until_s; from_s += kSpan_days * kDay_s) {
      const double to_s = std::min(until_s, from_s + kSpan_days * kDay_s);
      for (const health::Series& series : health::read_telemetry(directory, node, from_s, to_s, &data_.notes)) {
        add(unit(node), series);
      }
    }
  }
}

void Reader::add(Gathered& unit, const health::Series& series) {
  for (std::size_t column = 0; column < series.columns.size(); ++column) {
    float before = kUnknown;
    for (std::size_t row = 0; row < series.rows(); ++row) {
      const float value = series.at(row, column);
      if (!std::isfinite(value)) continue;
      reading(unit, series.device, series.columns[column], seen(series.times[row] / kDay_s), value, before);
    }
  }
}

// Devices of one sort are one metric: its peak is that of the worst of them. A counter becomes its growth from sample
// to sample; one that begins anew has grown by what it says.
void Reader::reading(Gathered& unit, std::string_view device, std::string_view column, double day, float value,
                     float& before) {
  const std::string name = fmt::format("{} {}", health::device_kind(device), column);
  const std::uint32_t metric = number_of(data_.metrics, name, kMaxMetrics, "metrics");
  const bool counts = health::column_of(device, column).second != health::ColumnKind::level;
  const float grown = value < before ? value : value - before;
  if (!counts || !std::isnan(before)) sample(unit, metric, day, counts ? grown : value);
  before = value;
}

// A list of only those that failed has no base rate, and one of nodes by other names has half of it.
void Reader::know_units(std::optional<std::size_t> count) {
  const Source all = !names(in_nodes).empty() ? in_nodes : lives_ ? in_faults : in_telemetry;
  if (!count && all == in_telemetry && names(in_telemetry, in_faults).empty()) {
    throw user_error(
        "predict.units",
        fmt::format("cannot know: all {} of the files have failed; how many never did?", plural(units_.size(), "unit")),
        "--nodes FILE names all, --nodes 400 says how many there are; telemetry of all does as well");
  }
  for (const Source source : {in_faults, in_telemetry}) {
    const std::size_t named = names(source).size();
    const std::vector<std::string> unknown = names(source, all);
    if (unknown.empty() || names(all).empty()) continue;
    const std::string what =
        fmt::format("{} of the {} that {} names {} not in {} ({} for one)", unknown.size(), plural(named, "unit"),
                    kOptions[source], unknown.size() == 1 ? "is" : "are", kOptions[all], unknown.front());
    if (unknown.size() * kUnknownIn > named) {
      throw user_error("predict.units", "cannot know: " + what,
                       "name all units, and alike in all files: n001 and n001.example.org are two");
    }
    data_.notes.push_back(what + ": left out");
    for (const std::string& name : unknown) units_.erase(name);
  }
  if (count && *count < units_.size()) {
    throw user_error("predict.units",
                     fmt::format("--nodes {}: the files name {}", *count, plural(units_.size(), "unit")),
                     "count all units, those that never failed too");
  }
}

Dataset Reader::finish(std::optional<std::size_t> count) {
  data_.first_day = first_;
  data_.last_day = last_;
  if (data_.kinds.empty()) throw user_error("predict.empty", "cannot know: there is not one fault to learn from");
  const auto first_bin = static_cast<std::int64_t>(std::floor(first_ / data_.bin_days)) + kZeroBin;
  const double bins = std::floor(last_ / data_.bin_days) - std::floor(first_ / data_.bin_days) + 1;
  if (bins > kMaxBins) {
    throw user_error("data.input", fmt::format("the files reach from day {:.0f} to day {:.0f}", first_, last_),
                     "are all times on one clock, in seconds or UTC?");
  }
  know_units(count);
  const std::size_t metrics = data_.metrics.size();
  data_.bins = metrics == 0 ? 0 : static_cast<std::size_t>(bins);
  if (units_.size() * metrics * data_.bins > kMaxCells) {
    throw user_error("data.input",
                     fmt::format("telemetry of {}, {} and {} is too much for one run", plural(units_.size(), "node"),
                                 plural(metrics, "metric"), plural(data_.bins, "bin")),
                     "read fewer days, or longer bins with --step");
  }
  for (auto& [name, gathered] : units_) {
    Unit unit{.name = name, .stays = std::move(gathered.stays), .faults = std::move(gathered.faults)};
    if (unit.stays.empty())
      unit.stays.push_back({.begin_day = -std::numeric_limits<double>::infinity(), .end_day = last_});
    for (Stay& stay : unit.stays) {
      stay.begin_known = std::isfinite(stay.begin_day);
      stay.begin_day = std::max(stay.begin_day, first_);
      stay.end_day = std::min(stay.end_day, last_);
      stay.facts.resize(data_.facts.size(), kUnknown);
    }
    std::sort(unit.stays.begin(), unit.stays.end(),
              [](const Stay& a, const Stay& b) { return a.begin_day < b.begin_day; });
    std::stable_sort(unit.faults.begin(), unit.faults.end(),
                     [](const Fault& a, const Fault& b) { return a.day < b.day; });
    if (!gathered.sums.empty()) {
      unit.mean.assign(metrics * data_.bins, kUnknown);
      unit.peak.assign(metrics * data_.bins, kUnknown);
    }
    for (const auto& [key, sums] : gathered.sums) {
      const std::size_t bin = static_cast<std::size_t>(static_cast<std::int64_t>(key & 0xFFFFFFFFU) - first_bin);
      const std::size_t cell = (key >> 32) * data_.bins + bin;
      unit.mean[cell] = static_cast<float>(sums.sum / static_cast<double>(sums.count));
      unit.peak[cell] = sums.peak;
    }
    data_.units.push_back(std::move(unit));
    gathered = {};
  }
  while (data_.units.size() < count.value_or(0)) {
    data_.units.push_back(
        {.stays = {
             {.begin_day = first_, .end_day = last_, .facts = std::vector<float>(data_.facts.size(), kUnknown)}}});
  }
  return std::move(data_);
}

}  // namespace

Dataset read_dataset(const Sources& sources) {
  Reader reader(sources.bin_days);
  const std::optional<std::size_t> count = count_of(sources.nodes);
  reader.faults(sources.faults);
  if (!sources.nodes.empty() && !count) reader.nodes(sources.nodes);
  for (const std::string& path : sources.telemetry) reader.telemetry(path);
  return reader.finish(count);
}

}  // namespace ms::predict
