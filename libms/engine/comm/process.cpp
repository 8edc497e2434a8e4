#include "comm/process.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/error.h"

namespace ms::comm {
namespace {

struct ProcStat {
  char state;
  std::uint64_t start_ticks;
};

// Reads fields 3 and 22 of PID/stat; the name in field 2 may hold spaces and parentheses, so counts from the last ')'.
std::optional<ProcStat> read_stat(const std::string& proc, std::int64_t pid) {
  std::ifstream file(fmt::format("{}/{}/stat", proc, pid));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  ProcStat stat{};
  fields >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> stat.start_ticks;
  if (!fields) return std::nullopt;
  return stat;
}

}  // namespace

ProcessId this_process() {
  ProcessId id{};
  if (gethostname(id.host, sizeof id.host - 1) != 0) {
    throw Error("comm.host", Blame::node, fmt::format("cannot read this host's name: {}", errno_text(errno)));
  }
  id.pid = getpid();
  struct stat ns {};
  if (stat("/proc/self/ns/pid", &ns) == 0) id.pid_namespace = ns.st_ino;
  if (const std::optional<ProcStat> stat = read_stat("/proc", id.pid)) id.start_ticks = stat->start_ticks;
  return id;
}

bool same_host(const ProcessId& a, const ProcessId& b) { return std::strcmp(a.host, b.host) == 0; }

bool has_died(const ProcessId& other, const ProcessId& self, const std::string& proc) {
  if (!same_host(other, self) || other.pid_namespace != self.pid_namespace || other.start_ticks == 0) return false;
  if (access(fmt::format("{}/{}/stat", proc, other.pid).c_str(), F_OK) != 0) return errno == ENOENT;
  const std::optional<ProcStat> stat = read_stat(proc, other.pid);
  // Exited between the two checks, a zombie, or another process with the same number.
  return !stat || stat->state == 'Z' || stat->state == 'X' || stat->start_ticks != other.start_ticks;
}

}  // namespace ms::comm
