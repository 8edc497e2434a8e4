#include "driver/time_spent.h"

#include <algorithm>
#include <numeric>

namespace ms::driver {
namespace {

// The share of an attempt's steps that no later one did again.
double kept_share(const Ledger& ledger, std::size_t index) {
  const AttemptEntry& attempt = ledger.attempts[index];
  std::int64_t kept_to = attempt.to_step;
  for (std::size_t later = index + 1; later < ledger.attempts.size(); ++later) {
    if (ledger.attempts[later].from_step >= 0) kept_to = std::min(kept_to, ledger.attempts[later].from_step);
  }
  const auto from = static_cast<double>(attempt.from_step), to = static_cast<double>(attempt.to_step);
  return std::clamp((static_cast<double>(kept_to) - from) / (to - from), 0.0, 1.0);
}

}  // namespace

double TimeSpent::effective() const {
  const double all_s = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  return all_s > 0 ? std::min(1.0, ((*this)[Spent::productive] + (*this)[Spent::slow]) / all_s) : 0;
}

TimeSpent time_spent(const Ledger& ledger, double now_s) {
  TimeSpent spent;
  double at_s = std::min(ledger.began_s, now_s);
  // Clocks are set, and a driver may not have said when an attempt ended: no time counts twice, and none is negative.
  const auto until = [&](double end_s, Spent kind) {
    const double to_s = std::clamp(end_s, at_s, now_s);
    spent[kind] += to_s - at_s;
    at_s = to_s;
  };
  Spent before = Spent::initialization;
  for (std::size_t i = 0; i < ledger.attempts.size(); ++i) {
    const AttemptEntry& attempt = ledger.attempts[i];
    until(attempt.began_s, before);
    before = attempt.cause == kResizesCause ? Spent::reinitialization : Spent::recovery;
    const double end_s = attempt.ended_s == 0 ? now_s : attempt.ended_s;
    // Ranks train until the fault. The driver takes evidence between the alarm and the end, and ends what still runs.
    const double fault_s = (attempt.alarm_s == 0 ? end_s : std::min(attempt.alarm_s, end_s)) - attempt.detect_s;
    const bool tells_steps = attempt.first_step_s != 0 && attempt.to_step > attempt.from_step;
    if (!tells_steps) {
      until(fault_s, attempt.to_step >= 0 ? Spent::startup : Spent::other);
      until(end_s, Spent::recovery);
      continue;
    }
    until(attempt.first_step_s, Spent::startup);
    const double to_s = std::clamp(fault_s, at_s, now_s), trained_s = to_s - at_s;
    const double kept_s = trained_s * kept_share(ledger, i), slow_s = std::clamp(attempt.slow_s, 0.0, kept_s);
    spent[Spent::productive] += kept_s - slow_s;
    spent[Spent::wasted] += trained_s - kept_s;
    spent[Spent::slow] += slow_s;
    at_s = to_s;
    until(end_s, Spent::recovery);
  }
  until(now_s, before);
  return spent;
}

}  // namespace ms::driver
