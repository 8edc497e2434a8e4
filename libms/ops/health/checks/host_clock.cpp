// The check host.clock (check.h): how well the node's clock is synchronised.
#include <fmt/format.h>
#include <sys/timex.h>

#include <cerrno>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

struct ClockState {
  bool synchronised = false;
  double max_error_s = 0;  // the kernel's bound
  double estimated_error_s = 0;
};

// The kernel's own view of its clock, as adjtimex(2) tells. A fake root holds the same numbers in run/fake/adjtimex:
// "status", "maxerror" and "esterror", a name and a number a line, errors in microseconds.
std::optional<ClockState> read_clock(const Sysroot& root, std::string& error) {
  timex now{};
  int state = TIME_OK;
  if (root.is_real()) {
    state = ::adjtimex(&now);
    if (state < 0) {
      error = "adjtimex: " + errno_text(errno);
      return std::nullopt;
    }
  } else {
    const auto text = root.read("/run/fake/adjtimex", 4096);
    if (!text) {
      error = "the root holds no run/fake/adjtimex";
      return std::nullopt;
    }
    for (const std::string& line : split(*text, '\n')) {
      Scan scan(line);
      const std::string_view name = scan.name();
      scan.blanks();
      const auto value = scan.number().value_or(0);
      if (name == "status") now.status = static_cast<int>(value);
      if (name == "maxerror") now.maxerror = static_cast<long>(value);
      if (name == "esterror") now.esterror = static_cast<long>(value);
    }
  }
  return ClockState{.synchronised = (now.status & STA_UNSYNC) == 0 && state != TIME_ERROR,
                    .max_error_s = static_cast<double>(now.maxerror) * 1e-6,
                    .estimated_error_s = static_cast<double>(now.esterror) * 1e-6};
}

std::vector<Finding> clock_findings(const ClockState& clock, double limit_s) {
  if (!clock.synchronised) return {about("clock", Severity::warning, "nothing keeps the clock synchronised")};
  const bool by_estimate = clock.estimated_error_s > limit_s;
  if (!by_estimate && clock.max_error_s <= limit_s) return {};
  const double error_s = by_estimate ? clock.estimated_error_s : clock.max_error_s;
  return {about("clock", Severity::warning,
                fmt::format("{} error {}", by_estimate ? "estimated" : "possible", format_duration(error_s)), error_s,
                limit_s, "s")};
}

Result check_host_clock(Evidence& evidence) {
  std::string error;
  const auto clock = read_clock(evidence.root(), error);
  if (!clock) return skipped(error);
  return judged(clock_findings(*clock, evidence.policy().limits.clock_error_s),
                fmt::format("error at most {}", format_duration(clock->max_error_s)));
}

}  // namespace

extern constinit const Check kHostClock = {
    .code = "host.clock",
    .summary = "a clock that is not synchronized or may be wrong",
    .needs = "adjtimex(2)",
    .explain =
        "Reads the state of the kernel's clock. It warns if no NTP or PTP daemon disciplines the clock, or if the "
        "estimated or maximum error is above limits.clock_error. A wrong clock breaks MUNGE credentials, which are "
        "valid for five minutes, and makes traces of several nodes incomparable.",
    .remedy = "Start or repair the node's time service (chronyc tracking, timedatectl).",
    .run = check_host_clock};

}  // namespace ms::health
