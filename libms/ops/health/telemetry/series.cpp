#include "health/telemetry/series.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/safe_file.h"
#include "base/system_error.h"
#include "base/text.h"
#include "health/evidence/growth.h"
#include "health/telemetry/day_file.h"
#include "health/telemetry/store.h"
#include "slurm/hostlist.h"

namespace ms::health {
namespace {

constexpr std::size_t kMaxDayFile = std::size_t{64} << 20;
constexpr std::size_t kMaxFiles = std::size_t{256} << 20;   // all of a call
constexpr std::size_t kMaxSeries = std::size_t{512} << 20;  // what it returns

Error telemetry_unread(std::string message, std::string hint) {
  return user_error("telemetry.read", std::move(message), std::move(hint));
}

UniqueFd open_to_read(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) {
    throw telemetry_unread(fmt::format("cannot open the directory '{}': {}", path, errno_text(errno)),
                           "it is made by the first ms-diag collect; is telemetry.directory on storage that is "
                           "mounted here?");
  }
  return fd;
}

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A device's columns of a segment: where each is in the segment, and in the series.
struct Part {
  const Segment* segment = nullptr;
  std::vector<std::pair<std::size_t, std::size_t>> columns = {};
};

// Gathers one series from segments whose columns may differ.
class SeriesBuilder {
 public:
  void add(const Segment& segment, const std::vector<std::size_t>& columns) {
    Part part{.segment = &segment};
    for (const std::size_t column : columns) {
      const std::string& name = segment.layout.columns[column].name;
      const auto [known, fresh] = index_.try_emplace(name, names_.size());
      if (fresh) names_.push_back(name);
      part.columns.emplace_back(column, known->second);
    }
    rows_ += segment.times.size();
    parts_.push_back(std::move(part));
  }

  double bytes() const {
    return static_cast<double>(rows_) *
           (static_cast<double>(names_.size()) * sizeof(float) + sizeof(double) + sizeof(std::size_t));
  }

  void fill(Series& series, double from_s, double to_s) const {
    std::vector<std::pair<double, std::pair<const Part*, std::size_t>>> rows;  // time, where it is
    for (const Part& part : parts_) {
      for (std::size_t row = 0; row < part.segment->times.size(); ++row) {
        const double time = part.segment->times[row];
        if (time >= from_s && time < to_s && tells(part, row)) rows.push_back({time, {&part, row}});
      }
    }
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    const auto same_time = [](const auto& a, const auto& b) { return a.first == b.first; };
    rows.erase(std::unique(rows.begin(), rows.end(), same_time), rows.end());
    series.columns = names_;
    series.values.assign(rows.size() * names_.size(), std::numeric_limits<float>::quiet_NaN());
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const auto& [part, at] = rows[row].second;
      series.times.push_back(rows[row].first);
      for (const auto& [from, to] : part->columns) series.values[row * names_.size() + to] = value(*part, at, from);
    }
  }

 private:
  static float value(const Part& part, std::size_t row, std::size_t column) {
    return part.segment->values[row * part.segment->layout.columns.size() + column];
  }
  // A device of which nothing was known then has no row.
  static bool tells(const Part& part, std::size_t row) {
    return std::any_of(part.columns.begin(), part.columns.end(),
                       [&](const auto& column) { return !std::isnan(value(part, row, column.first)); });
  }

  std::map<std::string, std::size_t> index_;
  std::vector<std::string> names_;
  std::vector<Part> parts_;
  std::size_t rows_ = 0;
};

std::vector<Segment> segments_of(const std::string& path, double from_s, double to_s, std::vector<std::string>* notes) {
  const Refusal refusal{.kind = "telemetry.read", .blame = Blame::user};
  const UniqueFd directory = open_to_read(path);
  std::vector<Segment> segments;
  std::size_t total = 0;
  for (const std::string& name : names_in(path)) {
    const std::optional<double> day_s = day_of_file(name);
    if (!day_s || *day_s >= to_s || *day_s + kDay_s <= from_s) continue;
    const std::string bytes = read_at(directory, name, kMaxDayFile, refusal).value_or("");
    total += bytes.size();
    if (total > kMaxFiles) {
      throw telemetry_unread(fmt::format("'{}' has more than {} of samples in that span", path,
                                         format_size(static_cast<double>(kMaxFiles))),
                             "ask for fewer days at once");
    }
    DayFile file = parse_day_file(bytes);
    if (file.lost_bytes > 0 && notes != nullptr) {
      notes->push_back(fmt::format("{}/{}: {} of {} bytes are damaged and were left out", path, name, file.lost_bytes,
                                   bytes.size()));
    }
    std::move(file.segments.begin(), file.segments.end(), std::back_inserter(segments));
  }
  return segments;
}

}  // namespace

std::vector<std::string> telemetry_nodes(const std::string& directory) {
  open_to_read(directory);
  std::vector<std::string> nodes = names_in(directory);
  std::erase_if(nodes, [&](const std::string& name) {
    std::error_code error;
    return !slurm::is_host_name(name) || !std::filesystem::is_directory(directory + "/" + name, error);
  });
  return nodes;
}

std::vector<Series> read_telemetry(const std::string& directory, const std::string& node, double from_s, double to_s,
                                   std::vector<std::string>* notes) {
  if (!slurm::is_host_name(node)) throw telemetry_unread(fmt::format("'{}' is not the name of a node", node), "");
  const std::vector<Segment> segments = segments_of(directory + "/" + node, from_s, to_s, notes);
  std::map<std::pair<std::string, Facts>, SeriesBuilder> builders;
  for (const Segment& segment : segments) {
    std::map<std::string, std::vector<std::size_t>> devices;
    for (std::size_t column = 0; column < segment.layout.columns.size(); ++column) {
      devices[segment.layout.columns[column].device].push_back(column);
    }
    for (const auto& [device, columns] : devices) {
      const auto facts = segment.layout.facts.find(device);
      builders[{device, facts == segment.layout.facts.end() ? Facts{} : facts->second}].add(segment, columns);
    }
  }
  const double bytes = std::accumulate(builders.begin(), builders.end(), 0.0,
                                       [](double sum, const auto& each) { return sum + each.second.bytes(); });
  if (bytes > static_cast<double>(kMaxSeries)) {
    throw telemetry_unread(fmt::format("the samples of {} would take {} of memory", node, format_size(bytes)),
                           "ask for fewer days at once");
  }
  std::vector<Series> all;
  for (const auto& [key, builder] : builders) {
    Series series{.node = node, .device = key.first, .facts = key.second};
    builder.fill(series, from_s, to_s);
    if (series.rows() > 0) all.push_back(std::move(series));
  }
  return all;
}

}  // namespace ms::health
