// The check disk.nfs (check.h): NFS servers that stopped answering.
#include <fmt/format.h>

#include <map>
#include <vector>

#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr auto kSilentServer =
    "Try it on another node: ls a directory of {0} there. If that hangs, too, the server is down: that is the storage "
    "team's. If it works, this node's network is at fault: ping {0}, ip link, and the network team. When {0} answers "
    "again, hung mounts resume by themselves; remount missing ones (mount PATH).";

Result check_disk_nfs(Evidence& evidence) {
  const KernelLog& log = evidence.kernel_log();
  if (!log.error.empty()) return skipped("the kernel's log cannot be read: " + log.error);
  std::map<std::string, std::vector<const KernelLine*>> silent;  // by server, since it last answered
  for (const KernelLine& line : log.lines) {
    Scan scan(line.text);
    if (!scan.literal("nfs: server ")) continue;
    const std::string server(scan.name());
    if (server.empty()) continue;
    if (scan.literal(" not responding, ")) {
      silent[server].push_back(&line);
    } else if (scan.literal(" OK")) {
      silent.erase(server);
    }
  }
  LogTally tally;
  for (const auto& [server, lines] : silent) {
    tally.add(Severity::warning, server, "the NFS server does not respond to this node");
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
    .summary = "NFS servers that stopped responding",
    .needs = "/dev/kmsg",
    .blame = Blame::storage,
    .user_can_cause = true,
    .explain =
        "Reads kernel messages about NFS servers that do not respond. Servers that responded again since are ignored. "
        "It never drains, since users may mount servers of their own.",
    .remedy =
        "Check whether the server responds to other nodes. If not, the server is down: contact the storage team. If it "
        "does, check this node's network (ping, ip link). Hung mounts resume by themselves when the server responds "
        "again; remount missing ones.",
    .run = check_disk_nfs};

}  // namespace ms::health
