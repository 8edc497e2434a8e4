#include "health/evidence/processes.h"

#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "base/text.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

// Places behind the name, whose end proc(5) counts as 2.
constexpr std::size_t kUserTime = 11;
constexpr std::size_t kSystemTime = 12;
constexpr std::size_t kStarted = 19;  // since boot

double ticks_s(const std::string& ticks) {
  return std::strtod(ticks.c_str(), nullptr) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

// "alice:x:1234:..."; empty: the file does not have it.
std::string user_name(const Sysroot& root, std::uint64_t user) {
  for (const std::string& line : split(root.read("/etc/passwd").value_or(""), '\n')) {
    const std::vector<std::string> fields = split(line, ':');
    if (fields.size() > 2 && fields[2] == std::to_string(user)) return fields[0];
  }
  return {};
}

}  // namespace

std::optional<Process> read_process(const Sysroot& root, const std::string& pid) {
  const std::string directory = "/proc/" + pid;
  const auto status = root.read(directory + "/status", 8192);
  const auto stat = root.read(directory + "/stat", 4096);
  if (!status || !stat) return std::nullopt;
  Process process;
  for (const std::string& line : split(*status, '\n')) {
    Scan scan(line);
    if (scan.literal("Uid:\t")) process.user = scan.number().value_or(0);
    if (scan.literal("VmRSS:")) {
      scan.blanks();
      scan.literal("\t");
      scan.blanks();
      process.memory_mib = static_cast<double>(scan.number().value_or(0)) / 1024;
    }
  }
  const std::size_t begin = stat->find('('), end = stat->rfind(") ");
  if (begin == std::string::npos || end == std::string::npos || end < begin) return std::nullopt;
  process.name = stat->substr(begin + 1, end - begin - 1);
  const std::vector<std::string> fields = split(stat->substr(end + 2), ' ');
  if (fields.size() > kSystemTime) process.cpu_s = ticks_s(fields[kUserTime]) + ticks_s(fields[kSystemTime]);
  const std::optional<std::string> uptime = root.read("/proc/uptime");
  if (fields.size() > kStarted && uptime) {
    const double age_s = std::strtod(uptime->c_str(), nullptr) - ticks_s(fields[kStarted]);
    if (age_s >= 0) process.age_s = age_s;
  }
  return process;
}

std::string user_of(const Sysroot& root, const Process& process) {
  const std::string name = user_name(root, process.user);
  return name.empty() ? std::to_string(process.user) : printable(name);
}

std::string describe_process(const Sysroot& root, const Process& process) {
  const bool has_name = !user_name(root, process.user).empty();
  std::vector<std::string> more;
  if (has_name) more.push_back(fmt::format("uid {}", process.user));
  if (process.age_s) more.push_back(fmt::format("started {} ago", format_duration(*process.age_s)));
  return fmt::format("{} of user {}{}", printable(process.name), user_of(root, process),
                     more.empty() ? "" : fmt::format(" ({})", fmt::join(more, ", ")));
}

}  // namespace ms::health
