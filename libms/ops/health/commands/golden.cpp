#include "health/commands/golden.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/escape.h"
#include "base/json.h"
#include "base/text.h"

namespace ms::health {
namespace {

constexpr std::size_t kEnoughNodes = 8;       // to know a spread
constexpr std::size_t kLeastGoldenPeers = 3;  // to be each other's golden
constexpr double kShareOfFew = 0.75;          // of the median of fewer nodes
constexpr double kLeastBelow = 0.05;
constexpr double kSpreads = 4;
constexpr double kMadToDeviation = 1.4826;  // of a normal distribution
constexpr double kCriticalShare = 0.5;

double middle(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

const Measured* find_measured(const Report& report, const GoldenRate& rate) {
  for (const Result& result : report.results) {
    if (result.code != rate.code) continue;
    for (const Measured& measured : result.measured)
      if (measured.entity == rate.entity && measured.unit == rate.unit) return &measured;
  }
  return nullptr;
}

std::string why_not_measured(const Report& report, const GoldenRate& rate) {
  for (const Result& result : report.results) {
    if ((result.code == rate.code || result.code == "ssh") && !result.note.empty()) return result.note;
  }
  return "it did not say";
}

std::vector<GoldenRate> rates_of(const std::vector<Report>& reports) {
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<double>> values;
  for (const Report& report : reports) {
    for (const Result& result : report.results) {
      for (const Measured& m : result.measured) values[{result.code, m.entity, m.unit}].push_back(m.value);
    }
  }
  std::vector<GoldenRate> rates;
  for (const auto& [key, list] : values) {
    const double median = middle(list);
    std::vector<double> distances;
    for (const double value : list) distances.push_back(std::abs(value - median));
    const auto& [code, entity, unit] = key;
    rates.push_back({.code = code,
                     .entity = entity,
                     .unit = unit,
                     .median = median,
                     .spread = median > 0 ? kMadToDeviation * middle(distances) / median : 0,
                     .nodes = list.size()});
  }
  return rates;
}

Json miss_json(const GoldenMiss& miss) {
  return {{"node", miss.node},          {"code", miss.rate.code},     {"entity", miss.rate.entity},
          {"unit", miss.rate.unit},     {"first", miss.first},        {"second", miss.second},
          {"golden", miss.rate.median}, {"limit", miss.rate.limit()}, {"nodes", miss.rate.nodes}};
}

}  // namespace

double GoldenRate::limit() const {
  if (nodes < kEnoughNodes) return kShareOfFew * median;
  return (1 - std::max(kLeastBelow, kSpreads * spread)) * median;
}

Golden learn_golden(const std::vector<Report>& reports) {
  Golden golden;
  for (const Report& report : reports) {
    std::size_t measured = 0;
    for (const Result& result : report.results) {
      if (result.outcome == Outcome::critical || result.outcome == Outcome::broken) {
        throw user_error(
            "golden.node",
            fmt::format("{} is no model for others: {} is {}", report.node, result.code, to_string(result.outcome)),
            "repair it, or name other nodes");
      }
      measured += result.measured.size();
    }
    if (measured == 0) throw user_error("golden.node", fmt::format("{} measured nothing", report.node));
    golden.nodes.push_back(report.node);
  }
  golden.rates = rates_of(reports);
  return golden;
}

std::string golden_json(const Golden& golden) {
  Json rates = Json::array();
  for (const GoldenRate& rate : golden.rates) {
    rates.push_back({{"code", rate.code},
                     {"entity", rate.entity},
                     {"unit", rate.unit},
                     {"median", rate.median},
                     {"spread", rate.spread},
                     {"nodes", rate.nodes}});
  }
  return Json{{"schema", 1}, {"nodes", golden.nodes}, {"rates", rates}}.dump(2) + "\n";
}

Golden golden_from_json(const std::string& text, const std::string& name) {
  try {
    const Json json = Json::parse(text);
    Golden golden{.nodes = json.get<std::vector<std::string>>("nodes")};
    for (const Json& rate : json.at("rates")) {
      golden.rates.push_back({.code = rate.get<std::string>("code"),
                              .entity = rate.get<std::string>("entity"),
                              .unit = rate.get<std::string>("unit"),
                              .median = rate.get<double>("median"),
                              .spread = rate.get<double>("spread"),
                              .nodes = rate.get<std::size_t>("nodes")});
    }
    return golden;
  } catch (const JsonError& error) {
    throw user_error("golden.format", fmt::format("{}: no golden values: {}", name, error.what()),
                     "ms-diag golden capture writes them");
  }
}

namespace {

GoldenComparison compare(const Golden& golden, const std::vector<Report>& first, const Measure& measure) {
  GoldenComparison comparison;
  std::set<std::string> again_codes;
  std::vector<GoldenMiss> doubts;
  std::vector<std::string> again;
  for (const Report& report : first) {
    bool any = false;
    for (const GoldenRate& rate : golden.rates) {
      const Measured* measured = find_measured(report, rate);
      if (measured == nullptr) {
        comparison.not_measured.push_back(
            fmt::format("{} {} {}: {}", report.node, rate.code, rate.entity, why_not_measured(report, rate)));
        continue;
      }
      any = true;
      if (measured->value >= rate.limit()) continue;
      doubts.push_back({.node = report.node, .rate = rate, .first = measured->value});
      again_codes.insert(rate.code);
      if (again.empty() || again.back() != report.node) again.push_back(report.node);
    }
    comparison.nodes += any ? 1 : 0;
  }
  if (doubts.empty()) return comparison;
  const std::vector<Report> second = measure(again, fmt::format("{}", fmt::join(again_codes, ",")));
  for (GoldenMiss& miss : doubts) {
    const auto report =
        std::find_if(second.begin(), second.end(), [&](const Report& r) { return r.node == miss.node; });
    const Measured* measured = report == second.end() ? nullptr : find_measured(*report, miss.rate);
    if (measured == nullptr) {
      comparison.not_measured.push_back(
          fmt::format("{} {} {}: low once, and not measured again", miss.node, miss.rate.code, miss.rate.entity));
      continue;
    }
    miss.second = measured->value;
    (miss.second < miss.rate.limit() ? comparison.accused : comparison.acquitted).push_back(std::move(miss));
  }
  return comparison;
}

}  // namespace

GoldenComparison compare_golden(const Golden& golden, const std::vector<std::string>& nodes, const Measure& measure) {
  std::set<std::string> codes;
  for (const GoldenRate& rate : golden.rates) codes.insert(rate.code);
  return compare(golden, measure(nodes, fmt::format("{}", fmt::join(codes, ","))), measure);
}

GoldenComparison compare_peers(const std::vector<std::string>& nodes, const std::string& only, const Measure& measure) {
  const std::vector<Report> first = measure(nodes, only);
  Golden golden{.nodes = nodes, .rates = rates_of(first)};
  std::vector<std::string> too_few;
  std::erase_if(golden.rates, [&](const GoldenRate& rate) {
    if (rate.nodes >= kLeastGoldenPeers) return false;
    too_few.push_back(fmt::format("{} {}: {} of {} measured it, too few to compare", rate.code, rate.entity,
                                  plural(rate.nodes, "node"), nodes.size()));
    return true;
  });
  GoldenComparison comparison = compare(golden, first, measure);
  comparison.not_measured.insert(comparison.not_measured.end(), too_few.begin(), too_few.end());
  return comparison;
}

int GoldenComparison::nagios_status() const {
  if (nodes == 0) return 3;
  const bool critical = std::any_of(accused.begin(), accused.end(), [](const GoldenMiss& miss) {
    return std::max(miss.first, miss.second) < kCriticalShare * miss.rate.median;
  });
  return critical ? 2 : accused.empty() ? 0 : 1;
}

std::string comparison_text(const GoldenComparison& comparison) {
  std::string text;
  for (const GoldenMiss& miss : comparison.accused) {
    text += safe_line(fmt::format("{}: slow {} {}: {:.3g} and again {:.3g} {}, golden {:.3g} of {}, limit {:.3g}",
                                  miss.node, miss.rate.code, miss.rate.entity, miss.first, miss.second, miss.rate.unit,
                                  miss.rate.median, plural(miss.rate.nodes, "node"), miss.rate.limit())) +
            "\n";
  }
  for (const GoldenMiss& miss : comparison.acquitted) {
    text += safe_line(fmt::format("{}: once low, not accused: {} {}: {:.3g}, then {:.3g} {}", miss.node, miss.rate.code,
                                  miss.rate.entity, miss.first, miss.second, miss.rate.unit)) +
            "\n";
  }
  for (const std::string& line : comparison.not_measured) text += safe_line("not measured: " + line) + "\n";
  return text + fmt::format("{} compared, {} accused\n", plural(comparison.nodes, "node"), comparison.accused.size());
}

std::string comparison_json(const GoldenComparison& comparison) {
  Json accused = Json::array(), acquitted = Json::array();
  for (const GoldenMiss& miss : comparison.accused) accused.push_back(miss_json(miss));
  for (const GoldenMiss& miss : comparison.acquitted) acquitted.push_back(miss_json(miss));
  return Json{{"schema", 1},
              {"nodes", comparison.nodes},
              {"accused", accused},
              {"acquitted", acquitted},
              {"not_measured", comparison.not_measured}}
             .dump(2) +
         "\n";
}

}  // namespace ms::health
