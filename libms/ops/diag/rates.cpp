#include "diag/rates.h"

#include <fmt/format.h>

#include <cmath>

namespace ms::diag {
namespace {

constexpr double kCriticalFraction = 0.5;
constexpr double kDisturbed = 0.1;     // of the processors: then a number is no number of this node
constexpr double kWorstCounts = 0.25;  // of one core, which all others wait for

// The part of the processors that others took from this measurement.
double taken(const Share& share, Scope scope) {
  if (scope == Scope::device) return 0;
  const Others others = share.others();
  return scope == Scope::cores && others.worst >= kWorstCounts ? std::max(others.worst, others.all) : others.all;
}

std::string number(double value) {
  return std::abs(value) >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

}  // namespace

health::Result judge_rates(const std::vector<Rate>& rates, double min_fraction, const Share& share, Scope scope,
                           const std::string& how, Severity worst) {
  std::vector<Finding> findings;
  std::vector<std::string> numbers;
  bool ignored = false, doubtful = false;
  const double others = taken(share, scope);
  // Threads in step need their cores at the same time, which others make rarer than each of them is.
  const double made_up = others < kDisturbed ? 1 : 1 / std::max(1e-9, (1 - others) * (1 - others));
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
    if (rate.measured * made_up >= limit) {
      doubtful = true;
      continue;
    }
    const bool critical =
        worst == Severity::critical && by_policy && rate.measured * made_up < kCriticalFraction * expected;
    findings.push_back(about(
        rate.entity, critical ? Severity::critical : Severity::warning,
        by_policy ? fmt::format("{} {} of {} expected ({})", number(rate.measured), rate.unit, number(expected), how)
                  : fmt::format("{} {}, where a healthy {} reaches at least {} ({}; {})", number(rate.measured),
                                rate.unit, rate.known.model, number(limit), rate.known.source, how),
        rate.measured, critical ? kCriticalFraction * expected : limit, rate.unit));
  }
  const std::string note = fmt::format("{} ({})", fmt::join(numbers, ", "), how);
  if (others >= kDisturbed && findings.empty()) {  // with no numbers to compare with those of other nodes
    const std::string beside =
        fmt::format("{} beside other programs, which took {:.0f}% of the processors", note, 100 * others);
    return doubtful ? health::not_measured(beside) : health::passed(beside);
  }
  health::Result result = health::judged(std::move(findings));
  for (const Rate& rate : rates) result.measured.push_back({rate.entity, rate.measured, rate.unit});
  result.note = note;
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
