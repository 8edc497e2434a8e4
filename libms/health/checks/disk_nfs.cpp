// The check disk.nfs (check.h): NFS servers that stopped answering.
#include <fmt/format.h>

#include <map>

#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

Result check_disk_nfs(Evidence& evidence) {
  const KernelLog& log = evidence.kernel_log();
  if (!log.error.empty()) return skipped("the kernel's log cannot be read: " + log.error);
  std::map<std::string, std::int64_t> silent;  // by server, how often since it last answered
  for (const KernelLine& line : log.lines) {
    Scan scan(line.text);
    if (!scan.literal("nfs: server ")) continue;
    const std::string server(scan.name());
    if (server.empty()) continue;
    if (scan.literal(" not responding, ")) {
      ++silent[server];
    } else if (scan.literal(" OK")) {
      silent.erase(server);
    }
  }
  LogTally tally;
  for (const auto& [server, times] : silent) tally.add(Severity::warning, server, "the NFS server does not respond");
  return judged(tally.findings());
}

}  // namespace

extern constinit const Check kDiskNfs = {
    .code = "disk.nfs",
    .lane = Lane::kernel,
    .summary = "NFS servers that stopped answering",
    .needs = "/dev/kmsg",
    .user_can_cause = true,
    .explain =
        "Reads what the kernel says of NFS servers that do not respond. A server that answered again since is "
        "passed over. Users may mount servers of their own, so it never drains.",
    .remedy = "See whether the server answers other nodes; if so, look at this node's network, then remount.",
    .run = check_disk_nfs};

}  // namespace ms::health
