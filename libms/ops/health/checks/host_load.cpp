// The check host.load (check.h): a node that is busy before the job begins.
#include <fmt/format.h>

#include <cstdlib>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr double kMostLoad = 2;  // a processor
constexpr std::size_t kMostZombies = 1000;

// "4711 (python3) Z 1 ...": the name may hold anything, so the state is behind the last parenthesis.
std::size_t zombies(const Sysroot& root) {
  std::size_t count = 0;
  for (const std::string& name : root.list("/proc")) {
    if (name.empty() || name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto stat = root.read(fmt::format("/proc/{}/stat", name), 4096);
    const std::size_t end = stat ? stat->rfind(") ") : std::string::npos;
    if (end != std::string::npos && stat->substr(end + 2).starts_with('Z')) ++count;
  }
  return count;
}

Result check_host_load(Evidence& evidence) {
  const auto text = evidence.root().read("/proc/loadavg", 256);
  if (!text) return skipped("/proc/loadavg cannot be read");
  const std::vector<std::string> words = split(*text, ' ');
  const double load = words.size() > 2 ? std::strtod(words[2].c_str(), nullptr) : 0;  // of fifteen minutes
  std::size_t cpus = 0;
  for (const std::string& name : evidence.root().list("/sys/devices/system/cpu")) {
    Scan scan(name);
    cpus += scan.literal("cpu") && scan.number() && scan.at_end() ? 1 : 0;
  }
  std::vector<Finding> findings;
  const double most = kMostLoad * static_cast<double>(cpus);
  if (cpus > 0 && load > most) {
    findings.push_back(about("load", Severity::warning,
                             fmt::format("{:.0f} over fifteen minutes, with {} processors", load, cpus), load, most));
  }
  if (const std::size_t count = zombies(evidence.root()); count >= kMostZombies) {
    findings.push_back(about("processes", Severity::warning, fmt::format("{} zombies", count), count, kMostZombies));
  }
  return judged(std::move(findings), fmt::format("load {:.1f}", load));
}

}  // namespace

extern constinit const Check kHostLoad = {
    .code = "host.load",
    .summary = "a node that is busy before the job starts",
    .needs = "/proc/loadavg",
    .user_can_cause = true,
    .explain =
        "Compares the load average with the number of CPUs, and counts zombies. A load of twice the CPUs over fifteen "
        "minutes means that processes of an earlier job still run; 1,000 zombies mean that a process does not reap its "
        "children.",
    .remedy = "Find the processes with ps -eo user,pid,stat,comm --sort -pcpu; end those left by earlier jobs.",
    .run = check_host_load};

}  // namespace ms::health
