// Trends in the samples of a site's last two days: counters of errors that rise, and GPUs that are hotter than their
// peers. Pure but for what reads.
//
// A counter rises where it grew in the last day before the node's newest sample, and by at least twice what it grew in
// the day before that. A GPU is hotter where its median over a day is above that of all GPUs of its model by more than
// 5 degrees and more than four spreads (1.4826 times the median absolute deviation); those that worked (half of the
// time busy, or more) are only compared with such, and idle ones with idle ones, and only where there are eight, with
// an hour of samples each.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "health/telemetry/series.h"

namespace ms::health {

struct Rise {
  std::string node = {}, device = {}, column = {}, unit = {};
  double last_day = 0;
  std::optional<double> day_before = {};  // nullopt: there are no samples of a whole day before
};

struct Hotter {
  std::string node = {}, device = {}, column = {}, state = {};  // "working" or "idle"
  double median = 0, peers_median = 0;
  std::size_t peers = 0;
};

struct SiteTrends {
  std::size_t nodes = 0;         // that have samples
  std::size_t young = 0;         // of these: for less than a day, so that what rises may not show yet
  std::vector<Rise> rises = {};  // by column, the steepest first
  std::vector<Hotter> hotter = {};
  std::vector<std::pair<std::string, double>> silent = {};  // node, its newest sample: more than an hour ago
  std::size_t compared = 0;                                 // GPUs whose temperatures could be compared
  std::size_t not_compared = 0;                             // too few peers, or too few samples
  std::vector<std::string> notes = {};                      // what could not be read
};

class TrendFinder {
 public:
  explicit TrendFinder(double now_s) : now_s_(now_s) {}
  void add(const std::string& node, const std::vector<Series>& series);
  SiteTrends finish() &&;

 private:
  struct Temperature {
    std::string node, device;
    double median;
  };
  void add_counters(const Series& series);
  void add_temperatures(const Series& series);

  double now_s_;
  SiteTrends trends_;
  // By model, column and state.
  std::map<std::pair<std::string, std::pair<std::string, std::string>>, std::vector<Temperature>> temperatures_;
};

// Reads all nodes, one after the other. A node that cannot be read is a note. Throws Error("telemetry.read", user)
// where the directory cannot be.
SiteTrends site_trends(const std::string& directory, double now_s);

}  // namespace ms::health
