#include "predict/rows.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace ms::predict {
namespace {

constexpr std::array<int, 4> kWindows_days{1, 7, 30, 90};
constexpr int kKindWindow_days = 90;
constexpr std::size_t kLevels = 6;     // columns of a metric
constexpr float kMostValue = 1e30F;    // squares, sums and differences of such are still numbers
constexpr float kMostSpreads = 100;    // from the median of the peers: what is further out says nothing more
constexpr double kTail = 0.05;         // of the peers, on either side, that do not make the spread
constexpr float kTailSpreads = 3.29F;  // between these tails, of a normal distribution

constexpr std::size_t kFixed = kWindows_days.size() + 4;  // counts in windows, count of all, days without, here, in all

// A metric's numbers over bins: sums of those that are known.
struct Level {
  double sum = 0, squares = 0;
  int count = 0;
  float peak = kUnknown;
  float mean() const { return count == 0 ? kUnknown : static_cast<float>(sum / count); }
  float spread() const {
    if (count < 2) return kUnknown;
    const double mean_value = sum / count;
    return static_cast<float>(std::sqrt(std::max(0.0, squares / count - mean_value * mean_value)));
  }
};

Level level_of(std::span<const float> means, std::span<const float> peaks) {
  Level level;
  for (std::size_t i = 0; i < means.size(); ++i) {
    if (std::isnan(means[i])) continue;
    level.sum += means[i];
    level.squares += static_cast<double>(means[i]) * means[i];
    ++level.count;
    level.peak = level.count == 1 ? peaks[i] : std::max(level.peak, peaks[i]);
  }
  return level;
}

// The usual level of a metric at a moment, over all units that have it. A new driver, another workload or a warmer hall
// change it for all alike, and say nothing of one unit.
struct Peers {
  float median = kUnknown, spread = 0;

  // In standard deviations, were the units normally distributed.
  float distance(float value) const {
    if (std::isnan(value) || spread == 0) return std::isnan(value) ? kUnknown : 0;
    return std::clamp((value - median) / spread, -kMostSpreads, kMostSpreads);
  }
};

Peers peers_of(std::vector<float>& values) {
  std::erase_if(values, [](float value) { return std::isnan(value); });
  if (values.empty()) return {};
  const auto quantile = [&](double part) {
    const auto at = values.begin() + std::lround(part * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), at, values.end());
    return *at;
  };
  Peers peers{.median = quantile(0.5)};
  peers.spread = (quantile(1 - kTail) - quantile(kTail)) / kTailSpreads;
  if (peers.spread > 0) return peers;
  // Nearly all are equal, such as counts of errors: the size of what differs is the scale.
  for (float& value : values) value = std::abs(value - peers.median);
  std::erase(values, 0.0F);
  if (!values.empty()) peers.spread = quantile(0.5) / kTailSpreads;
  return peers;
}

// The bins that had ended by then.
std::int64_t bins_ended(const Dataset& data, double day) {
  return static_cast<std::int64_t>(std::floor(day / data.bin_days)) -
         static_cast<std::int64_t>(std::floor(data.first_day / data.bin_days));
}

// Where the layout's names are in these data.
std::vector<std::size_t> places(const std::vector<std::string>& wanted, const std::vector<std::string>& had,
                                std::string_view what) {
  std::vector<std::size_t> found;
  for (const std::string& name : wanted) {
    const auto at = std::find(had.begin(), had.end(), name);
    if (at == had.end()) {
      throw user_error("predict.columns", fmt::format("cannot know: the data have no {} '{}'", what, name),
                       "the model was trained with it: give the same kinds of files");
    }
    found.push_back(static_cast<std::size_t>(at - had.begin()));
  }
  return found;
}

class Builder {
 public:
  Builder(const Dataset& data, const Layout& layout, const Task& task)
      : data_(data),
        layout_(layout),
        task_(task),
        facts_(places(layout.facts, data.facts, "column")),
        metrics_(places(layout.metrics, data.metrics, "metric")),
        kind_(data.kinds.size()),
        wanted_(data.kinds.size()) {
    bool any = false;
    for (std::size_t i = 0; i < data.kinds.size(); ++i) {
      const auto at = std::find(layout.kinds.begin(), layout.kinds.end(), data.kinds[i]);
      kind_[i] = static_cast<std::size_t>(at - layout.kinds.begin());  // the end: not known to the model
      for (const std::string& glob : split(task.target, ',')) {
        if (::fnmatch(glob.c_str(), data.kinds[i].c_str(), 0) == 0) wanted_[i] = any = true;
      }
    }
    if (!any) {
      throw user_error("predict.target", fmt::format("no fault is of a kind that matches '{}'", task.target),
                       fmt::format("the kinds are {}", fmt::join(data.kinds, ", ")));
    }
    std::vector<float> values;
    for (const std::size_t metric : metrics_) {
      for (std::size_t bin = 0; bin < data.bins; ++bin) {
        values.clear();
        for (const Unit& unit : data.units) {
          if (!unit.mean.empty()) values.push_back(bounded(unit.mean[metric * data.bins + bin]));
        }
        bin_peers_.push_back(peers_of(values));
      }
    }
  }

  void add(Rows& rows, std::uint32_t unit_number, double day) const {
    const Unit& unit = data_.units[unit_number];
    const auto stay = std::find_if(unit.stays.begin(), unit.stays.end(),
                                   [&](const Stay& s) { return s.begin_day <= day && day <= s.end_day; });
    if (stay == unit.stays.end()) return;
    const auto next = std::upper_bound(unit.faults.begin(), unit.faults.end(), day,
                                       [](double at, const Fault& fault) { return at < fault.day; });
    const std::span<const Fault> before(unit.faults.begin(), next);
    for (const Fault& fault : before) {
      if (fault.end_day > day) return;  // out of service
    }
    rows.info.push_back(label(unit_number, day, {next, unit.faults.end()}, stay->end_day));
    const std::size_t at = rows.values.size();
    rows.values.resize(at + rows.width);
    const std::span<float> row = std::span(rows.values).subspan(at);
    fill(row, unit, *stay, before, day);
    for (float& value : row) value = bounded(value);
  }

  // Puts the rows from `first` on, which are those of one moment, beside one another: levels become distances.
  void compare(Rows& rows, std::size_t first) const {
    std::vector<float> values;
    const std::size_t end = layout_.table_columns();
    for (std::size_t column = end - kLevels * metrics_.size(); column < end; ++column) {
      values.clear();
      for (std::size_t row = first; row < rows.size(); ++row) values.push_back(rows.row(row)[column]);
      const Peers peers = peers_of(values);
      for (std::size_t row = first; row < rows.size(); ++row) {
        float& value = rows.values[row * rows.width + column];
        value = peers.distance(value);
      }
    }
  }

 private:
  // Unknown values stay so.
  static float bounded(float value) { return std::clamp(value, -kMostValue, kMostValue); }

  RowInfo label(std::uint32_t unit, double day, std::span<const Fault> after, double in_service_until) const {
    RowInfo info{.unit = unit, .day = day};
    const double begin = day + task_.lead_days, end = begin + task_.horizon_days;
    for (const Fault& fault : after) {
      if (fault.day <= begin || !wanted_[fault.kind]) continue;
      if (fault.day > end) break;
      info.label = Label::fails;
      info.days_to_failure = static_cast<float>(fault.day - day);
      return info;
    }
    if (end <= std::min(data_.last_day, in_service_until)) info.label = Label::healthy;
    return info;
  }

  void fill(std::span<float> row, const Unit& unit, const Stay& stay, std::span<const Fault> before, double day) const {
    std::size_t at = 0;
    const auto log_of = [&](double value) { row[at++] = static_cast<float>(std::log1p(value)); };
    for (const int window : kWindows_days) {
      log_of(static_cast<double>(
          std::count_if(before.begin(), before.end(), [&](const Fault& fault) { return fault.day > day - window; })));
    }
    log_of(static_cast<double>(before.size()));
    // A longer time is known of no unit in the first days of the data: at most the longest window.
    log_of(std::min<double>(kWindows_days.back(), before.empty() ? kWindows_days.back() : day - before.back().day));
    log_of(stay.begin_known ? day - stay.begin_day : kUnknown);
    log_of(unit.stays.front().begin_known ? day - unit.stays.front().begin_day : kUnknown);
    std::vector<int> counts(layout_.kinds.size() + 1);
    for (const Fault& fault : before) {
      if (fault.day > day - kKindWindow_days) ++counts[kind_[fault.kind]];
    }
    for (std::size_t i = 0; i < layout_.kinds.size(); ++i) log_of(counts[i]);
    for (const std::size_t fact : facts_) row[at++] = stay.facts[fact];
    const std::int64_t ended = bins_ended(data_, day);
    for (const std::size_t metric : metrics_) {
      add_levels(row.subspan(at, kLevels), unit, metric, ended);
      at += kLevels;
    }
    add_series(row.subspan(at), unit, before, day, ended);
  }

  std::span<const float> bins(const std::vector<float>& values, std::size_t metric, std::int64_t ended,
                              double days) const {
    if (values.empty()) return {};
    const auto count = std::max<std::int64_t>(1, std::llround(days / data_.bin_days));
    const std::int64_t end = std::clamp<std::int64_t>(ended, 0, static_cast<std::int64_t>(data_.bins));
    const std::int64_t begin = std::max<std::int64_t>(0, ended - count);
    if (begin >= end) return {};
    return std::span(values).subspan(metric * data_.bins + static_cast<std::size_t>(begin),
                                     static_cast<std::size_t>(end - begin));
  }

  void add_levels(std::span<float> out, const Unit& unit, std::size_t metric, std::int64_t ended) const {
    const auto level = [&](double days) {
      return level_of(bins(unit.mean, metric, ended, days), bins(unit.peak, metric, ended, days));
    };
    const Level days = level(3), week = level(7), month = level(30);
    out[0] = level(1).mean();
    out[1] = days.mean();
    out[2] = week.mean();
    out[3] = days.mean() - month.mean();
    out[4] = week.peak;
    out[5] = week.spread();
  }

  void add_series(std::span<float> out, const Unit& unit, std::span<const Fault> before, double day,
                  std::int64_t ended) const {
    std::fill(out.begin(), out.begin() + kSeriesBins, 0.0F);
    for (const Fault& fault : before) {
      const auto back = static_cast<std::size_t>((day - fault.day) / data_.bin_days);
      if (back < kSeriesBins) out[kSeriesBins - 1 - back] += 1;
    }
    for (std::size_t i = 0; i < metrics_.size(); ++i) {
      const std::span<float> channel = out.subspan((i + 1) * kSeriesBins, kSeriesBins);
      const std::span<const float> known =
          bins(unit.mean, metrics_[i], ended, static_cast<double>(kSeriesBins) * data_.bin_days);
      std::fill(channel.begin(), channel.end(), kUnknown);
      if (known.empty()) continue;
      const Peers* peers = &bin_peers_[i * data_.bins] + (known.data() - &unit.mean[metrics_[i] * data_.bins]);
      std::transform(known.begin(), known.end(), peers, channel.end() - static_cast<std::ptrdiff_t>(known.size()),
                     [](float value, const Peers& of_bin) { return of_bin.distance(bounded(value)); });
    }
  }

  const Dataset& data_;
  const Layout& layout_;
  const Task& task_;
  std::vector<std::size_t> facts_, metrics_, kind_;
  std::vector<bool> wanted_;
  std::vector<Peers> bin_peers_;  // the layout's metrics x bins
};

}  // namespace

std::vector<Column> Layout::columns() const {
  std::vector<Column> all;
  std::uint32_t group = 0;
  const auto add = [&](std::string name, Holds holds) { all.push_back({std::move(name), group++, holds}); };
  for (const int window : kWindows_days) {
    add(fmt::format("faults in the last {}", window == 1 ? "day" : fmt::format("{} days", window)), Holds::log);
  }
  add("faults so far", Holds::log);
  add(fmt::format("days without a fault, at most {}", kWindows_days.back()), Holds::log);
  add("days in its place", Holds::log);
  add("days since it was first put in", Holds::log);
  for (const std::string& kind : kinds)
    add(fmt::format("{} faults in the last {} days", kind, kKindWindow_days), Holds::log);
  for (const std::string& fact : facts) add(fact, Holds::value);
  for (const std::string& metric : metrics) {
    for (const char* level : {" in the last day", " in the last 3 days", " in the last week",
                              ", last 3 days against month", ", peak of the week", ", spread over the week"}) {
      all.push_back({metric + level, group, Holds::distance});
    }
    ++group;
  }
  for (std::size_t channel = 0; channel < channels(); ++channel) {
    const std::string name = channel == 0 ? "the course of faults" : "the course of " + metrics[channel - 1];
    for (std::size_t bin = 0; bin < kSeriesBins; ++bin) all.push_back({name, group, Holds::value});
    ++group;
  }
  return all;
}

std::size_t Layout::table_columns() const { return kFixed + kinds.size() + facts.size() + kLevels * metrics.size(); }

Layout layout_of(const Dataset& data, const std::string& hidden) {
  Layout layout{.kinds = data.kinds, .facts = data.facts, .metrics = data.metrics, .bin_days = data.bin_days};
  if (!hidden.empty() && std::erase(layout.metrics, hidden) == 0) {
    throw user_error("predict.columns", fmt::format("the telemetry has no metric '{}'", hidden));
  }
  return layout;
}

Rows rows_at(const Dataset& data, const Layout& layout, const Task& task, std::span<const double> days) {
  const Builder builder(data, layout, task);
  Rows rows{.width = layout.width()};
  for (const double day : days) {
    const std::size_t first = rows.size();
    for (std::uint32_t unit = 0; unit < data.units.size(); ++unit) builder.add(rows, unit, day);
    builder.compare(rows, first);
  }
  return rows;
}

float last_level(const Dataset& data, const Unit& unit, std::size_t metric, double day) {
  const std::int64_t ended = bins_ended(data, day);
  if (unit.mean.empty() || ended <= 0) return kUnknown;
  return unit.mean[metric * data.bins + std::min(static_cast<std::size_t>(ended), data.bins) - 1];
}

}  // namespace ms::predict
