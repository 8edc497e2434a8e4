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
                           const std::string& how) {
  std::vector<Finding> findings;
  std::vector<std::string> numbers;
  bool ignored = false;
  for (const Rate& rate : rates) {
    numbers.push_back(fmt::format("{} {} {}", rate.entity, number(rate.measured), rate.unit));
    if (rate.expected < 0) continue;
    if (scope == Scope::cores && !share.whole_node) {
      ignored = true;
      continue;
    }
    const double expected = rate.expected * (scope == Scope::cores ? share.part() : 1);
    if (rate.measured >= min_fraction * expected) continue;
    const bool critical = rate.measured < kCriticalFraction * expected;
    findings.push_back(
        {.severity = critical ? Severity::critical : Severity::warning,
         .entity = rate.entity,
         .message = fmt::format("{} {} of {} expected ({})", number(rate.measured), rate.unit, number(expected), how),
         .measured = rate.measured,
         .limit = (critical ? kCriticalFraction : min_fraction) * expected,
         .unit = rate.unit});
  }
  health::Result result = health::judged(std::move(findings));
  for (const Rate& rate : rates) result.measured.push_back({rate.entity, rate.measured, rate.unit});
  result.note = fmt::format("{} ({})", fmt::join(numbers, ", "), how);
  if (ignored) result.note += ", not judged: other cores of this node are not ours";
  return result;
}

}  // namespace ms::diag
