#include "train/simulate/faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "train/simulate/fault_files.h"

namespace ms::train {
namespace {

constexpr double kMostFaults = 1e7;
constexpr double kMostPerNodeDay = 1000;

double exponential(double mean, double uniform_01) { return -mean * std::log1p(-uniform_01); }

std::optional<FaultSource> parse_rate(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::optional<double> rate = parse_fault_number(text.substr(0, colon));
  if (!rate) return std::nullopt;
  if (*rate > kMostPerNodeDay || *rate < 0) {
    throw user_error("faults.rate",
                     fmt::format("--failures {}: a node has 0 to {:g} faults a day", text, kMostPerNodeDay));
  }
  double repair_s = 0;
  if (colon != std::string::npos) {
    const std::optional<double> given = parse_duration_s(text.substr(colon + 1));
    if (!given) {
      throw user_error("faults.rate", fmt::format("--failures {}: the mean repair is not a duration", text),
                       "write for instance 0.004:12h");
    }
    repair_s = *given;
  }
  return FaultSource{.hazards = {{.kind = FaultKind::crash, .per_node_day = *rate, .repair_s = repair_s}}};
}

// Times of a Poisson process, with draws of an exponential distribution.
template <class F>
void draw_events(double per_day, double mean_s, double seconds, std::uint64_t seed, std::uint64_t key, F&& add) {
  if (per_day == 0) return;
  double at_s = 0;
  for (std::uint64_t i = 0;; i += 2) {
    at_s += exponential(kSecondsPerDay / per_day, uniform(seed, key, i));
    if (at_s >= seconds) return;
    add(at_s, exponential(mean_s, uniform(seed, key, i + 1)));
  }
}

void draw_from_hazards(const FaultSource& source, int node, double seconds, std::uint64_t seed,
                       std::vector<NodeFault>& faults) {
  for (std::size_t h = 0; h < source.hazards.size(); ++h) {
    const Hazard& hazard = source.hazards[h];
    draw_events(hazard.per_node_day, hazard.repair_s, seconds, seed,
                rng_key(fmt::format("hazard {} of node {}", h, node)), [&](double at_s, double repair_s) {
                  faults.push_back({.begin_s = at_s, .node = node, .repair_s = repair_s, .kind = hazard.kind});
                });
  }
}

void draw_from_trace(const FaultSource& source, int node, double seconds, std::uint64_t seed,
                     std::vector<NodeFault>& faults) {
  const std::uint64_t key = rng_key(fmt::format("history of node {}", node));
  const std::uint64_t which = uniform_below(seed, key, 0, source.watched);
  const double from_s = uniform(seed, key, 1) * source.span_s;
  if (which >= source.histories.size()) return;
  for (const Fault& fault : source.histories[which]) {
    double at_s = fault.begin_s - from_s;
    if (at_s < 0) at_s += source.span_s;
    for (; at_s < seconds; at_s += source.span_s) {
      faults.push_back({.begin_s = at_s, .node = node, .repair_s = fault.repair_s, .kind = fault.kind});
    }
  }
}

}  // namespace

std::string_view to_string(FaultKind kind) {
  constexpr std::array<std::string_view, 4> kNames{"crash", "lost", "hang", "slow"};
  return kNames[static_cast<std::size_t>(kind)];
}

StorageOutages parse_outages(const std::string& text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::optional<double> rate = parse_fault_number(text.substr(0, colon));
  const std::optional<double> mean_s =
      colon < text.size() ? parse_duration_s(text.substr(colon + 1)) : std::optional<double>();
  if (rate && *rate >= 0 && *rate <= kMostPerNodeDay && mean_s) return {.per_day = *rate, .mean_s = *mean_s};
  throw user_error(
      "faults.rate",
      fmt::format("--storage-outages {}: it is 0 to {:g} a day, and how long in the mean", text, kMostPerNodeDay),
      "write for instance 0.1:2h");
}

std::vector<Outage> draw_outages(const StorageOutages& outages, double seconds, std::uint64_t seed) {
  std::vector<Outage> drawn;
  draw_events(outages.per_day, outages.mean_s, seconds, seed, rng_key("outages of storage"),
              [&](double at_s, double length_s) {
                if (drawn.empty() || at_s > drawn.back().end_s) drawn.push_back({.begin_s = at_s, .end_s = at_s});
                drawn.back().end_s = std::max(drawn.back().end_s, at_s + length_s);
              });
  return drawn;
}

double FaultSource::per_node_day() const {
  double rate = 0;
  for (const Hazard& hazard : hazards) rate += hazard.per_node_day;
  std::size_t faults = 0;
  for (const auto& history : histories) faults += history.size();
  if (faults > 0) rate += static_cast<double>(faults) / (static_cast<double>(watched) * span_s / kSecondsPerDay);
  return rate;
}

double FaultSource::mean_repair_s(std::optional<FaultKind> kind) const {
  double weight = 0, sum_s = 0;
  for (const Hazard& hazard : hazards) {
    if (kind && hazard.kind != *kind) continue;
    weight += hazard.per_node_day;
    sum_s += hazard.per_node_day * hazard.repair_s;
  }
  for (const auto& history : histories) {
    for (const Fault& fault : history) {
      if (kind && fault.kind != *kind) continue;
      weight += 1;
      sum_s += fault.repair_s;
    }
  }
  return weight == 0 ? 0 : sum_s / weight;
}

FaultSource read_faults(const std::string& text, std::optional<std::int64_t> watched) {
  std::optional<FaultSource> source = parse_rate(text);
  if (!source) source = read_fault_file(text);
  if (source->histories.empty() && watched) {
    throw user_error("faults.nodes", fmt::format("--trace-nodes is for traces, and {} is not a trace", text));
  }
  if (source->histories.empty()) return *std::move(source);
  const std::size_t named = source->histories.size();
  if (!watched) {
    throw user_error(
        "faults.nodes",
        fmt::format("{} names {} with faults, but not the number of nodes without faults", text, plural(named, "node")),
        "give the number of all nodes with --trace-nodes N");
  }
  if (*watched < static_cast<std::int64_t>(named)) {
    throw user_error("faults.nodes",
                     fmt::format("--trace-nodes {}: {} names {}", *watched, text, plural(named, "node")));
  }
  source->watched = static_cast<std::size_t>(*watched);
  return *std::move(source);
}

std::vector<NodeFault> draw_faults(const FaultSource& source, int nodes, double seconds, std::uint64_t seed) {
  const double expected = source.per_node_day() * nodes * seconds / kSecondsPerDay;
  if (expected > kMostFaults) {
    throw user_error("faults.number",
                     fmt::format("these are some {} faults: more than the simulation takes", format_count(expected)));
  }
  std::vector<NodeFault> faults;
  for (int node = 0; node < nodes; ++node) {
    source.hazards.empty() ? draw_from_trace(source, node, seconds, seed, faults)
                           : draw_from_hazards(source, node, seconds, seed, faults);
  }
  std::ranges::sort(faults, [](const NodeFault& a, const NodeFault& b) {
    return a.begin_s != b.begin_s ? a.begin_s < b.begin_s : a.node < b.node;
  });
  return faults;
}

}  // namespace ms::train
