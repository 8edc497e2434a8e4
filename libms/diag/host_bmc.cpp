// host.bmc: sensors and the event log of the node's BMC, by ipmitool.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "base/text.h"
#include "diag/tool.h"
#include "health/checks/check.h"

namespace ms::diag {
namespace {

constexpr double kIpmitool_s = 25;  // a BMC sends its sensors one by one
constexpr double kRecent_s = 7 * 86400.0;
constexpr std::size_t kMostEvents = 8;  // that are named

// Words of events and of discrete sensors that nobody sees on a healthy node.
constexpr std::string_view kBadWords[] = {"Uncorrectable ECC",
                                          "logging limit reached",
                                          "Failure detected",
                                          "AC lost",
                                          "Predictive failure",
                                          "Redundancy Lost",
                                          "IERR",
                                          "Thermal Trip",
                                          "Machine Check",
                                          "Bus Fatal Error",
                                          "PCI SERR",
                                          "Uncorrectable error",
                                          "Watchdog",
                                          "Memory Device Disabled"};
// States of a sensor beyond a threshold.
constexpr std::string_view kBadStates[] = {"nc", "cr", "nr", "lnc", "lcr", "lnr", "unc", "ucr", "unr"};

bool has_bad_word(std::string_view text) {
  return std::ranges::any_of(kBadWords,
                             [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

// "FAN1 | 30h | ok | 7.1 | 5400 RPM"; returns how many sensors there are.
std::size_t judge_sensors(const std::string& text, std::vector<Finding>& findings) {
  std::size_t sensors = 0;
  for (const std::string& line : split(text, '\n')) {
    const std::vector<std::string> cells = split(line, '|');
    if (cells.size() < 5) continue;
    ++sensors;
    const bool beyond = std::ranges::find(kBadStates, cells[2]) != std::end(kBadStates);
    if (!beyond && !has_bad_word(cells[4])) continue;
    findings.push_back({.severity = Severity::warning,
                        .entity = printable(cells[0], 40),
                        .message = fmt::format("is {}{}", printable(cells[4], 60),
                                               beyond ? fmt::format(", state {}", cells[2]) : std::string{})});
  }
  return sensors;
}

// Reads "11/20/2026" and "10:00:00"; negative: the BMC did not know the time.
double event_time_s(const std::string& date, const std::string& time) {
  std::tm utc{};
  if (std::sscanf(date.c_str(), "%d/%d/%d", &utc.tm_mon, &utc.tm_mday, &utc.tm_year) != 3) return -1;
  if (std::sscanf(time.c_str(), "%d:%d:%d", &utc.tm_hour, &utc.tm_min, &utc.tm_sec) != 3) return -1;
  utc.tm_mon -= 1;
  utc.tm_year -= 1900;
  return static_cast<double>(::timegm(&utc));
}

// "1 | 11/20/2026 | 10:00:00 | Memory #0x53 | Uncorrectable ECC | Asserted"; returns how many events there are.
std::size_t judge_events(const std::string& text, double now_s, std::vector<Finding>& findings) {
  std::size_t events = 0, named = 0;
  const std::vector<std::string> lines = split(text, '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {  // the latest first
    const std::vector<std::string> cells = split(*line, '|');
    if (cells.size() < 5) continue;
    ++events;
    const double at_s = event_time_s(cells[1], cells[2]);
    const bool deasserted = cells.size() > 5 && cells[5] == "Deasserted";
    if (deasserted || now_s - at_s > kRecent_s || !has_bad_word(cells[4]) || named++ >= kMostEvents) continue;
    findings.push_back(
        {.severity = Severity::warning,
         .entity = printable(cells[3], 40),
         .message = fmt::format("{} on {} {} (event {})", printable(cells[4], 60), printable(cells[1], 12),
                                printable(cells[2], 12), printable(cells[0], 8))});
  }
  return events;
}

health::Result ask_bmc(health::Evidence& evidence) {
  const std::string& tool = evidence.policy().paths.ipmitool;
  const ToolAnswer sensors = ask_tool({tool, "sdr", "elist"}, "paths.ipmitool", kIpmitool_s);
  if (!sensors.why.empty()) return health::skipped(sensors.why);
  std::vector<Finding> findings;
  const std::size_t count = judge_sensors(sensors.out, findings);
  if (count == 0) return health::skipped("the BMC lists no sensor");
  const ToolAnswer log = ask_tool({tool, "sel", "elist"}, "paths.ipmitool", kIpmitool_s);
  const std::size_t events = judge_events(log.out, evidence.now_wall_s(), findings);
  // An empty event log prints nothing, or says so on standard error.
  health::Result result = health::judged(std::move(findings));
  result.note = fmt::format("{}, {} in the log", plural(count, "sensor"), plural(events, "event"));
  return result;
}

}  // namespace

extern constinit const health::Check kHostBmc = {
    .code = "host.bmc",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "sensors beyond their limits, and hardware failures in the BMC's event log",
    .needs = "ipmitool (paths.ipmitool), a BMC, and root",
    .deadline_s = 60,
    .proved = "a fake ipmitool",
    .explain =
        "ipmitool asks the BMC for its sensors (sdr elist) and its event log (sel elist). A sensor beyond a threshold, "
        "a power supply that failed or lost its input, lost redundancy, and events of the last seven days about "
        "uncorrectable memory, processors, PCIe or supplies are warnings. Older events pass, as a log is seldom "
        "cleared. It is no passive check because a BMC answers slowly: seconds, with a hundred sensors. Never seen on "
        "hardware, so it warns.",
    .remedy = "Repair what it names; then clear the log (ipmitool sel save FILE, ipmitool sel clear).",
    .run = ask_bmc};

}  // namespace ms::diag
