#include "diag/rates.h"

#include <fmt/format.h>

#include <cmath>

namespace ms::diag {
namespace {

constexpr double kCriticalFraction = 0.5;

std::string number(double value) {
  return std::abs(value) >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

}  // namespace

health::Result judge_rates(const std::vector<Rate>& rates, double min_fraction, const Share& share, Scope scope,
                           const std::string& how, Severity worst) {
  std::vector<Finding> findings;
  std::vector<std::string> numbers;
  bool ignored = false;
  for (const Rate& rate : rates) {
    numbers.push_back(fmt::format("{} {} {}", rate.entity, number(rate.measured), rate.unit));
    const bool by_policy = rate.expected >= 0;
    if (!by_policy && rate.known.least < 0) continue;
    if (scope == Scope::cores && !share.whole_node) {
      ignored = true;
      continue;
    }
    const double part = scope == Scope::cores ? share.part() : 1;
    const double expected = part * rate.expected;
    const double limit = by_policy ? min_fraction * expected : part * rate.known.least;
    if (rate.measured >= limit) continue;
    const bool critical = worst == Severity::critical && by_policy && rate.measured < kCriticalFraction * expected;
    findings.push_back({.severity = critical ? Severity::critical : Severity::warning,
                        .entity = rate.entity,
                        .message = by_policy ? fmt::format("{} {} of {} expected ({})", number(rate.measured),
                                                           rate.unit, number(expected), how)
                                             : fmt::format("{} {}, where a healthy {} reaches at least {} ({}; {})",
                                                           number(rate.measured), rate.unit, rate.known.model,
                                                           number(limit), rate.known.source, how),
                        .measured = rate.measured,
                        .limit = critical ? kCriticalFraction * expected : limit,
                        .unit = rate.unit});
  }
  health::Result result = health::judged(std::move(findings));
  for (const Rate& rate : rates) result.measured.push_back({rate.entity, rate.measured, rate.unit});
  result.note = fmt::format("{} ({})", fmt::join(numbers, ", "), how);
  if (ignored) result.note += ", not judged: other cores of this node are not ours";
  return result;
}

health::Result with_findings(health::Result result, std::vector<Finding> more) {
  more.insert(more.begin(), result.findings.begin(), result.findings.end());
  health::Result whole = health::judged(std::move(more), result.note);
  whole.note = std::move(result.note);
  whole.measured = std::move(result.measured);
  return whole;
}

}  // namespace ms::diag
