// Memory, processors, clock and space of the node itself: host.memory, host.cpus, host.clock, host.space. Every one is
// a look at /proc, /sys or a system call; the verdicts are plain functions of the numbers.
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/text.h"
#include "health/checks.h"
#include "health/scan.h"

namespace ms::health {
namespace {

constexpr double kKiBPerMiB = 1024;
// Without an expectation, installed memory is compared with usable memory: what the kernel keeps for itself (page
// tables, a crash kernel) is no loss.
constexpr double kKernelShare_percent = 5;

// A value of /proc/meminfo in MiB.
std::optional<double> meminfo_mib(std::string_view text, std::string_view key) {
  for (const std::string& line : split(text, '\n')) {
    Scan scan(line);
    if (!scan.literal(key) || !scan.literal(":")) continue;
    scan.blanks();
    if (const auto kib = scan.number()) return static_cast<double>(*kib) / kKiBPerMiB;
  }
  return std::nullopt;
}

// What the memory controllers (EDAC) say is plugged in; 0: they do not say.
double installed_mib(const Sysroot& root) {
  double total = 0;
  for (const std::string& name : root.list("/sys/devices/system/edac/mc")) {
    const auto size = root.read_int(fmt::format("/sys/devices/system/edac/mc/{}/size_mb", name));
    if (name.starts_with("mc") && size) total += static_cast<double>(*size);
  }
  return total;
}

// How many processors "0-3,8" names; nullopt: it is no such list.
std::optional<std::int64_t> count_cpus(std::string_view list) {
  std::int64_t count = 0;
  for (const std::string& part : split(list, ',')) {
    Scan scan(part);
    const auto first = scan.number();
    const auto last = scan.literal("-") ? scan.number() : first;
    if (!first || !last || *last < *first || !scan.at_end()) return std::nullopt;
    count += static_cast<std::int64_t>(*last - *first + 1);
  }
  return count;
}

std::optional<std::int64_t> cpus(const Sysroot& root, std::string_view which) {
  const auto text = root.read(fmt::format("/sys/devices/system/cpu/{}", which), 4096);
  return text ? count_cpus(trim(*text)) : std::nullopt;
}

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
  if (!clock.synchronised) {
    return {{.severity = Severity::warning, .entity = "clock", .message = "nothing keeps the clock synchronised"}};
  }
  const bool by_estimate = clock.estimated_error_s > limit_s;
  if (!by_estimate && clock.max_error_s <= limit_s) return {};
  const double error_s = by_estimate ? clock.estimated_error_s : clock.max_error_s;
  return {{.severity = Severity::warning,
           .entity = "clock",
           .message = fmt::format("{} error {}", by_estimate ? "estimated" : "possible", format_duration(error_s)),
           .measured = error_s,
           .limit = limit_s,
           .unit = "s"}};
}

void judge_share(std::vector<Finding>& findings, const std::string& path, std::string_view what, double free,
                 double total, double limit_percent) {
  if (total <= 0) return;  // file systems that do not count it
  const double percent = 100 * free / total;
  if (percent >= limit_percent) return;
  findings.push_back({.severity = Severity::warning,
                      .entity = path,
                      .message = fmt::format("{:.1f}% of its {} are free", percent, what),
                      .measured = percent,
                      .limit = limit_percent,
                      .unit = "%"});
}

}  // namespace

Result check_host_memory(Evidence& evidence) {
  const auto text = evidence.root().read("/proc/meminfo");
  const auto usable_mib = text ? meminfo_mib(*text, "MemTotal") : std::nullopt;
  if (!usable_mib) return skipped("/proc/meminfo does not say how much memory there is");
  std::vector<Finding> findings;
  const auto poisoned_mib = meminfo_mib(*text, "HardwareCorrupted");
  if (poisoned_mib && *poisoned_mib > 0) {
    findings.push_back(
        {.severity = Severity::warning,
         .entity = "memory",
         .message = fmt::format("{:.0f} KiB were taken out of use after memory errors", *poisoned_mib * kKiBPerMiB),
         .measured = *poisoned_mib,
         .limit = 0.0,
         .unit = "MiB"});
  }
  const double limit_percent = evidence.policy().limits.memory_missing_percent;
  const bool is_expected = evidence.policy().expect.memory_mib > 0;
  const double wanted_mib = is_expected ? static_cast<double>(evidence.policy().expect.memory_mib)
                                        : installed_mib(evidence.root()) * (1 - kKernelShare_percent / 100);
  if (wanted_mib <= 0 && findings.empty()) {
    return skipped("expect.memory_mib is not set, and the memory controllers do not say what is installed");
  }
  if (wanted_mib > 0 && *usable_mib < wanted_mib * (1 - limit_percent / 100)) {
    findings.push_back({.severity = is_expected ? Severity::critical : Severity::warning,
                        .entity = "memory",
                        .message = fmt::format("{:.0f} MiB are usable of {:.0f} MiB that {}", *usable_mib, wanted_mib,
                                               is_expected ? "are expected" : "should be, by what is installed"),
                        .measured = *usable_mib,
                        .limit = wanted_mib,
                        .unit = "MiB"});
  }
  return judged(std::move(findings), fmt::format("{:.0f} MiB", *usable_mib));
}

Result check_host_cpus(Evidence& evidence) {
  const Sysroot& root = evidence.root();
  const auto online = cpus(root, "online");
  const auto present = cpus(root, "present");
  if (!online || !present) return skipped("/sys/devices/system/cpu does not say which processors there are");
  const std::int64_t expected = evidence.policy().expect.cpus;
  const std::string threads = root.read("/sys/devices/system/cpu/smt/control", 64).value_or("");
  const bool threads_off = threads == "off" || threads == "forceoff";
  std::vector<Finding> findings;
  const auto fewer = [&](Severity severity, std::int64_t count, std::int64_t of, std::string_view what) {
    findings.push_back({.severity = severity,
                        .entity = "processors",
                        .message = fmt::format("{} of {} {}", count, of, what),
                        .measured = static_cast<double>(count),
                        .limit = static_cast<double>(of),
                        .unit = "processors"});
  };
  if (expected > 0 && *present < expected) {
    // Not even present: the firmware hides them, and nobody who may log in can have done that.
    fewer(Severity::critical, *present, expected, "expected processors are present");
  } else if (expected > 0 && *online < expected) {
    fewer(Severity::warning, *online, expected, "expected processors are online");
  } else if (expected <= 0 && !threads_off && *online < *present) {
    fewer(Severity::warning, *online, *present, "present processors are online");
  }
  return judged(std::move(findings), fmt::format("{} online", *online));
}

Result check_host_clock(Evidence& evidence) {
  std::string error;
  const auto clock = read_clock(evidence.root(), error);
  if (!clock) return skipped(error);
  return judged(clock_findings(*clock, evidence.policy().limits.clock_error_s),
                fmt::format("error at most {}", format_duration(clock->max_error_s)));
}

Result check_host_space(Evidence& evidence) {
  std::vector<Finding> findings;
  std::size_t asked = 0;
  const double limit_percent = evidence.policy().limits.space_free_percent;
  std::set<dev_t> devices;  // several places on one file system are one
  for (const std::string path : {"/tmp", "/dev/shm", "/var/spool/slurmd", "/var", "/"}) {
    struct statvfs space {};
    struct stat status {};
    const std::string place = evidence.root().path(path);
    if (::statvfs(place.c_str(), &space) != 0 || ::stat(place.c_str(), &status) != 0) continue;
    ++asked;
    if (!devices.insert(status.st_dev).second) continue;
    if ((space.f_flag & ST_RDONLY) != 0) continue;  // images are full by nature
    judge_share(findings, path, "bytes", static_cast<double>(space.f_bavail), static_cast<double>(space.f_blocks),
                limit_percent);
    judge_share(findings, path, "inodes", static_cast<double>(space.f_favail), static_cast<double>(space.f_files),
                limit_percent);
  }
  if (asked == 0) return skipped("none of the places that fill up is there");
  return judged(std::move(findings), plural(asked, "place"));
}

}  // namespace ms::health
