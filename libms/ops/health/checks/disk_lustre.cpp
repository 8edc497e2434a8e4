// The check disk.lustre (check.h): a Lustre client that is unwell, was evicted or lost a server.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

// "LustreError: 167-0: scratch-OST0001-osc-ffff8a: This client was evicted by scratch-OST0001; in progress ..."
bool read_eviction(Scan line, LogTally& tally) {
  if (!line.literal("LustreError: ")) return false;
  Scan behind = line;
  if (behind.number() && behind.literal("-") && behind.number() && behind.literal(": ")) line = behind;
  if (!line.name().ends_with(':') || !line.literal(" This client was evicted by ")) return false;
  const std::string_view target = line.name();
  if (target.empty()) return false;
  tally.add(Severity::warning, std::string(target), "evicted this client");
  return true;
}

// "LustreError: 31415:0:(osc_cache.c:2290:osc_enter_cache()) LBUG", and before it "... ASSERTION( ... ) failed: ".
bool read_bug(Scan line, LogTally& tally) {
  if (!line.literal("LustreError: ") || !line.number() || !line.literal(":") || !line.number() || !line.literal(":("))
    return false;
  const std::size_t end = line.rest().find("()) ");
  if (end == std::string_view::npos || line.rest().substr(0, end).find(' ') != std::string_view::npos) return false;
  line = Scan(line.rest().substr(end));
  line.literal("()) ");
  if (!line.one_of({"ASSERTION( ", "ASSERTION("}) && line.rest() != "LBUG") return false;
  tally.add(Severity::warning, "client", "hit a bug of its own (LBUG): I/O to Lustre hangs from then on",
            "Reboot the node when its jobs have ended or are cancelled, and send the kernel's log to Lustre's vendor.");
  return true;
}

// Servers whose connection was lost, by the client's own name of it ("scratch-MDT0000-mdc-ffff88").
class LostServers {
 public:
  // "Lustre: scratch-MDT0000-mdc-ff: Connection to scratch-MDT0000 (at 10.0.0.1@tcp) was lost; in progress operations
  // using this service will wait for recovery to complete", and "Lustre: ...: Connection restored to ...". Operations
  // of the MGS fail instead of waiting, and no I/O does.
  bool read(Scan line, double when_s) {
    if (!line.one_of({"Lustre: ", "LustreError: "})) return false;
    if (line.literal("Unmounted ")) {
      std::string_view file_system = line.name();
      file_system = file_system.substr(0, file_system.rfind("-client"));
      return std::erase_if(lost_, [&](const auto& entry) { return entry.first.starts_with(file_system); }) > 0;
    }
    Scan behind = line;  // "166-1: "
    if (behind.number() && behind.literal("-") && behind.name().ends_with(':') && behind.literal(" ")) line = behind;
    const std::string client(line.name());
    if (!client.ends_with(':') || !line.literal(" Connection ")) return false;
    if (line.literal("restored to ")) return lost_.erase(client) > 0;
    if (!line.literal("to ")) return false;
    const std::string_view server = line.name();
    if (server.empty() ||
        line.rest().find(" was lost; in progress operations using this service will wait") == std::string_view::npos) {
      return false;
    }
    lost_.insert_or_assign(client, Lost{std::string(server), when_s});
    return true;
  }

  // The client's own state decides, where it can be read: "Connection restored" may be dropped from a busy log.
  std::vector<Finding> findings(const Sysroot& root, double up_s) const {
    std::vector<Finding> found;
    for (const auto& [client, lost] : lost_) {
      if (is_connected(root, client.substr(0, client.size() - 1))) continue;
      found.push_back({.severity = Severity::warning,
                       .entity = lost.server,
                       .message = fmt::format("not reachable since {}: I/O to it waits",
                                              format_duration(std::max(0.0, up_s - lost.when_s))),
                       .remedy = "See whether other clients lost it at the same time. If they did, look at the server "
                                 "and its network; if only this node did, at this node's way to it (lctl ping)."});
    }
    return found;
  }

 private:
  struct Lost {
    std::string server;
    double when_s;
  };

  static bool is_connected(const Sysroot& root, const std::string& client) {
    for (const std::string_view where : {"/proc/fs/lustre", "/sys/kernel/debug/lustre"}) {
      for (const std::string_view kind : {"mdc", "osc"}) {
        const auto state = root.read(fmt::format("{}/{}/{}/import", where, kind, client));
        if (state)
          return state->find("state: FULL") != std::string::npos || state->find("state: IDLE") != std::string::npos;
      }
    }
    return false;
  }

  std::map<std::string, Lost> lost_;
};

Result check_disk_lustre(Evidence& evidence) {
  const KernelLog& log = evidence.kernel_log();
  LogTally tally;
  LostServers servers;
  for (const KernelLine& line : log.lines) {
    if (read_eviction(Scan(line.text), tally) || read_bug(Scan(line.text), tally) ||
        servers.read(Scan(line.text), line.since_boot_s))
      evidence.mark_judged(line);
  }
  std::vector<Finding> findings = tally.findings();
  std::ranges::move(servers.findings(evidence.root(), evidence.uptime_s()), std::back_inserter(findings));
  std::optional<std::string> health;
  for (const char* file : {"/sys/fs/lustre/health_check", "/proc/fs/lustre/health_check"}) {
    if (!health) health = evidence.root().read(file, 4096);
  }
  if (health && *health != "healthy") {
    findings.push_back(about("health_check", Severity::warning, "the Lustre client says: " + printable(*health)));
  }
  if (!health && !log.error.empty()) return skipped("neither the kernel's log nor Lustre's health_check can be read");
  return judged(std::move(findings), health ? "health_check says healthy" : "no Lustre client");
}

}  // namespace

extern constinit const Check kDiskLustre = {
    .code = "disk.lustre",
    .lane = Lane::kernel,
    .summary = "a Lustre client that is unhealthy, was evicted or lost a server",
    .needs = "/dev/kmsg or Lustre",
    .blame = Blame::storage,
    .explain =
        "Reads health_check of the Lustre client, and evictions, lost connections and bugs of the client (LBUG) in the "
        "kernel log. An eviction "
        "makes pending I/O fail. While the connection to a target (MDT or OST) is lost, I/O to it waits. A connection "
        "does not count if it was restored, or if its import file shows it as connected. If several clients are "
        "evicted at once, suspect the server or the network.",
    .remedy = "Look for the network error before the eviction; reboot the node if health_check says LBUG.",
    .run = check_disk_lustre};

}  // namespace ms::health
