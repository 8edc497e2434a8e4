// host.bmc: sensors and the event log of the node's BMC, by ipmitool.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <set>
#include <span>

#include "base/text.h"
#include "diag/tool.h"
#include "health/checks/check.h"

namespace ms::diag {
namespace {

constexpr double kIpmitool_s = 25;  // a BMC sends its sensors one by one
constexpr double kRecent_s = 7 * 86400.0;
constexpr double kAhead_s = 86400;      // of our clock: a BMC's time may be that of its own zone
constexpr std::size_t kMostEvents = 8;  // that are named

// Words of events and of discrete sensors that a healthy node does not have.
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

// Words of states, which end; the others are of what happened, which stays true when the BMC takes the event back.
constexpr std::string_view kPassingWords[] = {"Failure detected", "AC lost", "Predictive failure", "Redundancy Lost",
                                              "logging limit reached"};
// Events that say that a lost redundancy is back.
constexpr std::string_view kRedundantWords[] = {"Fully Redundant", "Redundancy Regained"};
// Readings of a sensor that measures nothing now, whatever its state.
constexpr std::string_view kNoReadings[] = {"No Reading", "Disabled", "na", ""};

bool has_word_of(std::span<const std::string_view> words, std::string_view text) {
  return std::ranges::any_of(words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

// "Presence detected, Power Supply AC lost": a discrete sensor has several states, and some say what is not so.
bool is_bad_reading(std::string_view reading) {
  return std::ranges::any_of(split(reading, ','), [](const std::string& state) {
    return has_word_of(kBadWords, state) && !state.starts_with("No ") && state.find("disabled") == std::string::npos;
  });
}

// "FAN1 | 30h | ok | 7.1 | 5400 RPM"; returns how many sensors there are.
std::size_t judge_sensors(const std::string& text, std::vector<Finding>& findings) {
  std::size_t sensors = 0;
  for (const std::string& line : split(text, '\n')) {
    const std::vector<std::string> cells = split(line, '|');
    if (cells.size() < 5) continue;
    ++sensors;
    if (std::ranges::find(kNoReadings, cells[4]) != std::end(kNoReadings)) continue;
    const bool beyond = std::ranges::find(kBadStates, cells[2]) != std::end(kBadStates);
    if (!beyond && !is_bad_reading(cells[4])) continue;
    findings.push_back(about(
        printable(cells[0], 40), Severity::warning,
        fmt::format("is {}{}", printable(cells[4], 60), beyond ? fmt::format(", state {}", cells[2]) : std::string{})));
  }
  return sensors;
}

// Reads "11/20/2026", "11/20/26", as newer versions write it, or "2026-11-20", and "10:00:00"; nullopt: this is no
// time, as where the BMC did not know it.
std::optional<double> event_time_s(const std::string& date, const std::string& time) {
  std::tm utc{};
  if (std::sscanf(date.c_str(), "%4d-%2d-%2d", &utc.tm_year, &utc.tm_mon, &utc.tm_mday) != 3 &&
      std::sscanf(date.c_str(), "%2d/%2d/%4d", &utc.tm_mon, &utc.tm_mday, &utc.tm_year) != 3) {
    return std::nullopt;
  }
  if (std::sscanf(time.c_str(), "%2d:%2d:%2d", &utc.tm_hour, &utc.tm_min, &utc.tm_sec) != 3) return std::nullopt;
  utc.tm_mon -= 1;
  utc.tm_year -= utc.tm_year < 100 ? -100 : 1900;
  return static_cast<double>(::timegm(&utc));
}

struct Events {
  std::size_t all = 0;
  std::size_t undated = 0;  // that would be findings, had they a date that can be so
  std::size_t ahead = 0;
};

// "1 | 11/20/2026 | 10:00:00 | Memory #0x53 | Uncorrectable ECC | Asserted"
Events judge_events(const std::string& text, double now_s, std::vector<Finding>& findings) {
  Events events;
  std::size_t named = 0;
  std::set<std::pair<std::string, std::string>> ended;  // sensors with the states that a later event takes back
  std::set<std::string> redundant;                      // sensors
  const std::vector<std::string> lines = split(text, '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {  // the latest first
    const std::vector<std::string> cells = split(*line, '|');
    if (cells.size() < 5) continue;
    ++events.all;
    const bool deasserted = cells.size() > 5 && cells[5] == "Deasserted";
    if (deasserted) ended.emplace(cells[3], cells[4]);
    if (!deasserted && has_word_of(kRedundantWords, cells[4])) redundant.insert(cells[3]);
    const bool over = has_word_of(kPassingWords, cells[4]) && ended.contains({cells[3], cells[4]});
    const bool regained = cells[4].find("Redundancy Lost") != std::string::npos && redundant.contains(cells[3]);
    if (deasserted || over || regained || !has_word_of(kBadWords, cells[4])) continue;
    const std::optional<double> at_s = event_time_s(cells[1], cells[2]);
    if (!at_s) ++events.undated;
    if (at_s && *at_s - now_s > kAhead_s) ++events.ahead;
    if (!at_s || *at_s - now_s > kAhead_s || now_s - *at_s > kRecent_s || named++ >= kMostEvents) continue;
    findings.push_back(about(printable(cells[3], 40), Severity::warning,
                             fmt::format("{} on {} {} (event {})", printable(cells[4], 60), printable(cells[1], 12),
                                         printable(cells[2], 12), printable(cells[0], 8))));
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
  const Events events = judge_events(log.out, evidence.now_wall_s(), findings);
  std::string note = plural(count, "sensor");
  // An empty event log prints nothing, or says so on standard error, and is no failure.
  if (log.ok) {
    note += fmt::format(", {} in the log", plural(events.all, "event"));
  } else {
    note += fmt::format("; the event log cannot be read: {}", log.why.empty() ? plain_text(log.out, 160) : log.why);
  }
  if (events.undated > 0) note += fmt::format("; {} without a date not judged", plural(events.undated, "failure"));
  if (events.ahead > 0) {
    note += fmt::format("; {} dated in the future not judged: see to the BMC's clock", plural(events.ahead, "failure"));
  }
  health::Result result = health::judged(std::move(findings));
  result.note = note;
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
        "Reads the sensors (sdr elist) and the event log (sel elist) of the BMC with ipmitool. It warns of a sensor "
        "beyond a threshold, a power supply that failed or lost its input, lost redundancy, and events of the last "
        "seven days about uncorrectable memory errors, CPUs, PCIe or power supplies. Older events are ignored, because "
        "logs are rarely cleared. States that a later event of the same sensor ended are ignored, too. Failures "
        "without a date, or with a future date, are only counted in the note. It is not a passive check, because a BMC "
        "with a hundred sensors takes seconds to respond. Not yet seen on real hardware, so it only warns.",
    .remedy = "Repair what it names; then clear the log (ipmitool sel save FILE, ipmitool sel clear).",
    .run = ask_bmc};

}  // namespace ms::diag
