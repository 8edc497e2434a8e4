// The check disk.nfs (check.h): servers of NFS, SMB and Ceph that stopped answering.
#include <fmt/format.h>

#include <map>
#include <optional>
#include <vector>

#include "health/checks/check.h"
#include "health/evidence/growth.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr auto kSilentServer =
    "Try it on another node: ls a directory of {0} there. If that hangs, too, the server is down: that is the storage "
    "team's. If it works, this node's network is at fault: ping {0}, ip link, and the network team. When {0} answers "
    "again, hung mounts resume by themselves; remount missing ones (mount PATH).";

struct Said {
  std::string server;
  bool answers = false;
  bool passes = false;  // the kernel does not log when it answers again
};

// "nfs: server fs1 not responding, still trying" and "nfs: server fs1 OK"; of soft mounts only "..., timed out".
std::optional<Said> read_nfs(Scan line) {
  if (!line.literal("nfs: server ")) return std::nullopt;
  std::string server(line.name());
  if (server.empty()) return std::nullopt;
  if (line.literal(" OK")) return Said{.server = std::move(server), .answers = true};
  if (!line.literal(" not responding, ")) return std::nullopt;
  return Said{.server = std::move(server), .passes = line.rest() == "timed out"};
}

// "CIFS: VFS: \\\\filer has not responded in 180 seconds. Reconnecting..."
std::optional<Said> read_smb(Scan line) {
  if (!line.literal("CIFS: VFS: \\\\")) return std::nullopt;
  std::string server(line.name());
  if (server.empty() || !line.literal(" has not responded in ") || !line.number() || !line.literal(" seconds."))
    return std::nullopt;
  return Said{.server = std::move(server), .passes = true};
}

// "ceph: mds0 hung" and "ceph: mds0 came back"; newer kernels write "[fsid client]: " before them.
std::optional<Said> read_ceph(Scan line) {
  if (!line.literal("ceph: ")) return std::nullopt;
  if (const std::size_t end = line.rest().find("]: "); line.literal("[") && end != std::string_view::npos)
    line = Scan(line.rest().substr(end + 2));
  const std::string_view server = line.name();
  Scan rank(server);
  if (!rank.literal("mds") || !rank.number() || !rank.at_end()) return std::nullopt;
  if (line.rest() != " hung" && line.rest() != " came back") return std::nullopt;
  return Said{.server = fmt::format("ceph {}", server), .answers = line.rest() == " came back"};
}

Result check_disk_nfs(Evidence& evidence) {
  const KernelLog& log = evidence.kernel_log();
  if (!log.error.empty()) return skipped("the kernel's log cannot be read: " + log.error);
  const double now_s = evidence.uptime_s();
  std::map<std::string, std::vector<const KernelLine*>> silent;  // by server, since it last answered
  for (const KernelLine& line : log.lines) {
    std::optional<Said> said = read_nfs(Scan(line.text));
    if (!said) said = read_smb(Scan(line.text));
    if (!said) said = read_ceph(Scan(line.text));
    if (!said) continue;
    if (said->answers) {
      silent.erase(said->server);
    } else if (!said->passes || line.since_boot_s >= now_s - kHour_s) {
      silent[said->server].push_back(&line);
    }
  }
  LogTally tally;
  for (const auto& [server, lines] : silent) {
    tally.add(Severity::warning, server, "the server of network storage does not respond to this node");
    for (const KernelLine* line : lines) evidence.mark_judged(*line);
  }
  std::vector<Finding> findings = tally.findings();
  for (Finding& finding : findings) finding.remedy = fmt::format(kSilentServer, finding.entity);
  return judged(std::move(findings));
}

}  // namespace

extern constinit const Check kDiskNfs = {
    .code = "disk.nfs",
    .lane = Lane::kernel,
    .summary = "NFS, SMB and Ceph servers that stopped responding",
    .needs = "/dev/kmsg",
    .blame = Blame::storage,
    .user_can_cause = true,
    .explain =
        "Reads kernel messages about servers of NFS, SMB and Ceph that do not respond. Servers that responded again "
        "since "
        "are ignored. For soft mounts of NFS and for SMB the kernel does not log that, so they count for an hour. "
        "It never drains, since users may mount servers of their own.",
    .remedy =
        "Check whether the server responds to other nodes. If not, the server is down: contact the storage team. If it "
        "does, check this node's network (ping, ip link). Hung mounts resume by themselves when the server responds "
        "again; remount missing ones.",
    .run = check_disk_nfs};

}  // namespace ms::health
