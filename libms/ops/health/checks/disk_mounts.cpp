// The check disk.mounts (check.h): mounts that are gone or do not answer. Users can have network file systems mounted
// (autofs, fstab's "user", udisks), also of servers of their own: a finding is critical only for the mounts that the
// site expects.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/mount_probe.h"
#include "health/evidence/mounts.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

// File systems that are asked also where they are not expected. Never fuse, whose servers are users' programs, nor
// autofs, which mounts when asked.
constexpr std::string_view kAskedFilesystems[] = {
    "nfs",   "nfs4", "lustre", "gpfs",  "beegfs", "ceph", "wekafs", "cifs", "smb3",  "9p",  "afs",  "virtiofs",
    "panfs", "gfs2", "ocfs2",  "pvfs2", "ext2",   "ext3", "ext4",   "xfs",  "btrfs", "zfs", "f2fs", "bcachefs"};
// Errors that tell of a file system that no longer works, whoever asks.
bool is_trouble(int error) {
  constexpr int kTroubles[] = {ESTALE,    EIO,     EHOSTDOWN, EHOSTUNREACH, ENETUNREACH, ETIMEDOUT,    ENOTCONN,
                               ESHUTDOWN, EUCLEAN, EREMOTEIO, ENODEV,       ENXIO,       ECONNREFUSED, ECONNRESET};
  return std::find(std::begin(kTroubles), std::end(kTroubles), error) != std::end(kTroubles);
}

constexpr std::string_view kNetworkFilesystems[] = {"nfs",  "nfs4", "lustre", "gpfs",  "beegfs", "ceph",  "wekafs",
                                                    "cifs", "smb3", "afs",    "panfs", "gfs2",   "ocfs2", "pvfs2"};
constexpr std::string_view kServerOrNode =
    "See whether other nodes reach it (ls it there). If none does, its server is down: that is the storage team's. If "
    "they do, look at this node's network, then mount it again or reboot the node.";

struct Asked {
  std::string path;
  bool expected = false;
  std::string type;    // "nfs4"
  std::string source;  // "server:/export", printable
};

// Completes a finding about a file system: who looks after it.
Finding with_owner(Finding finding, std::string_view type) {
  if (!contains(kNetworkFilesystems, type)) return finding;
  finding.blame = Blame::storage;
  finding.remedy = kServerOrNode;
  return finding;
}

Finding not_mounted(const Sysroot& root, const std::string& path) {
  Finding finding = about(path, Severity::critical, "is not mounted");
  const std::vector<FstabLine> lines = read_fstab(root);
  const auto line = std::ranges::find(lines, path, &FstabLine::path);
  if (line == lines.end()) return finding;
  finding.message += fmt::format(" (/etc/fstab: {} {})", printable(line->type), printable(line->source));
  return with_owner(std::move(finding), line->type);
}

// Where users may mount by /etc/fstab, and what mount(8) noted down as mounted by a user or for one (udisks).
std::set<std::string> mounted_by_users(const Sysroot& root) {
  std::set<std::string> paths;
  for (const FstabLine& line : read_fstab(root)) {
    for (const std::string_view option : {"user", "users", "owner", "group"}) {
      if (contains(line.options, option)) paths.insert(line.path);
    }
  }
  const std::string notes = root.read("/run/mount/utab").value_or("");
  for (const std::string& line : split(notes, '\n')) {
    std::string path;
    bool of_user = false;
    for (const std::string& word : split(line, ' ')) {
      if (word.starts_with("TARGET=")) path = word.substr(word.find('=') + 1);
      if (!word.starts_with("OPTS=")) continue;
      for (const std::string& option : split(word.substr(word.find('=') + 1), ',')) {
        of_user = of_user || option.starts_with("user=") || option.starts_with("uhelper=");
      }
    }
    if (of_user) paths.insert(path);
  }
  return paths;
}

// On or below a mount point of autofs: mounted because somebody, maybe a user, went there.
bool is_automounted(const std::vector<Mount>& mounts, const std::string& path) {
  return std::any_of(mounts.begin(), mounts.end(), [&](const Mount& mount) {
    return mount.type == "autofs" && (path == mount.path || path.starts_with(mount.path + "/"));
  });
}

// Returns the mounts to check, each file system once: expected ones first, then all others not known to be a user's.
std::vector<Asked> to_be_asked(const Sysroot& root, const std::vector<Mount>& mounts,
                               const std::vector<std::string>& expected) {
  const std::set<std::string> of_users = mounted_by_users(root);
  std::vector<Asked> asked;
  std::set<std::string> devices;
  for (const std::string& path : expected) {
    const Mount* mount = mounted_at(mounts, path);
    if (mount == nullptr || (mount->type != "autofs" && !devices.insert(mount->device).second)) continue;
    asked.push_back({path, true, mount->type, printable(mount->source)});
  }
  for (const Mount& mount : mounts) {
    if (!contains(kAskedFilesystems, mount.type) || mount.source.starts_with("/dev/loop")) continue;
    if (of_users.contains(mount.path) || is_automounted(mounts, mount.path)) continue;
    if (&mount != mounted_at(mounts, mount.path) || !devices.insert(mount.device).second) continue;
    asked.push_back({mount.path, false, mount.type, printable(mount.source)});
  }
  return asked;
}

Severity severity_of(const Asked& asked) { return asked.expected ? Severity::critical : Severity::warning; }

Finding silent(const Asked& asked, double deadline_s, std::string_view since) {
  return with_owner(
      about(asked.path, severity_of(asked), fmt::format("{} {} did not answer {}", asked.type, asked.source, since),
            deadline_s, deadline_s, "s"),
      asked.type);
}

Result check_disk_mounts(Evidence& evidence) {
  const Sysroot& root = evidence.root();
  const std::vector<std::string> expected = expected_mounts(evidence);
  const auto text = root.read("/proc/self/mountinfo");
  if (!text) return skipped("/proc/self/mountinfo cannot be read");
  const std::vector<Mount> mounts = parse_mountinfo(*text);
  std::vector<Finding> findings;
  for (const std::string& path : expected) {
    if (mounted_at(mounts, path) != nullptr) continue;
    findings.push_back(not_mounted(root, path));
  }
  const std::vector<Asked> asked = to_be_asked(root, mounts, expected);
  if (asked.empty() && expected.empty())
    return skipped("nothing is mounted here that could hang, and none is expected");

  // A process of an earlier run may still hang on its mount: a new one would hang there too.
  Counters keep;
  const double deadline_s = evidence.policy().limits.mount_deadline_s;
  std::vector<Asked> now;
  std::vector<std::string> paths;
  for (const Asked& mount : asked) {
    const std::string name = "disk.mounts waits " + mount.path;
    const auto earlier = evidence.before(name);
    if (earlier && still_waits(static_cast<pid_t>(earlier->value))) {
      keep[name] = *earlier;
      findings.push_back(silent(mount, deadline_s, "since an earlier run"));
    } else {
      now.push_back(mount);
      paths.push_back(root.path(mount.path));
    }
  }
  const std::vector<Answer> answers = ask_paths(paths, deadline_s);
  std::size_t not_asked = 0, excused = 0;
  for (std::size_t i = 0; i < now.size(); ++i) {
    const Answer& answer = answers[i];
    if (answer.excused) {
      ++excused;
    } else if (!answer.answered) {
      findings.push_back(silent(now[i], deadline_s, fmt::format("within {}", format_duration(deadline_s))));
      if (answer.left_behind > 0) {
        keep["disk.mounts waits " + now[i].path] = {static_cast<double>(answer.left_behind), evidence.now_wall_s()};
      }
    } else if (is_trouble(answer.error) || (now[i].expected && (answer.error == ENOENT || answer.error == ENOTDIR))) {
      findings.push_back(
          with_owner(about(now[i].path, severity_of(now[i]),
                           fmt::format("{} {}: {}", now[i].type, now[i].source, errno_text(answer.error))),
                     now[i].type));
    } else if (answer.error == EAGAIN || answer.error == ENOMEM) {
      ++not_asked;
    }
  }
  if (excused > 0 && findings.empty()) {
    return skipped(
        fmt::format("{} did not answer within {}, but this node is too busy to tell: neither did who asks "
                    "nothing, or who asked got no CPU",
                    plural(excused, "mount"), format_duration(deadline_s)));
  }
  Result result = judged(std::move(findings), fmt::format("{} answered{}", plural(now.size() - not_asked, "mount"),
                                                          not_asked ? fmt::format(", {} not asked", not_asked) : ""));
  result.counters = std::move(keep);
  return result;
}

}  // namespace

extern constinit const Check kDiskMounts = {
    .code = "disk.mounts",
    .lane = Lane::mounts,
    .summary = "mounts that are missing or do not respond",
    .needs = "/proc/self/mountinfo",
    .deadline_s = 30,  // more than any sensible limits.mount_deadline, which is what cuts
    .explain =
        "Every path of expect.mounts must be a mount point and must respond within limits.mount_deadline to statfs, "
        "stat and a partial directory listing. Other mounts of network and disk file systems are checked too, but "
        "cause only warnings and never drain, since users may control them or their server. Put the mounts that jobs "
        "need into expect.mounts.\n\n"
        "A separate process checks each mount, all in parallel, so a dead server costs one deadline. A hung process "
        "that cannot be killed is left behind, and later runs skip its mount while it waits. If the node itself is "
        "slow (the process got no CPU time, or an idle control process does not respond either), the mount is not "
        "judged and the check is skipped. Mounts that users control are checked only if they are in expect.mounts: "
        "FUSE, everything at and below an autofs mount point, user mounts of /etc/fstab, and udisks mounts.\n\n"
        "Paths in expect.mounts must be written as in /proc/self/mountinfo, without symbolic links. Permission denied "
        "counts as a response.\n\nWhile jobs run on the node, ms-diag health and ms-diag repair do not drain it for a "
        "mount that is too slow: a job may have loaded it.",
    .remedy =
        "mount PATH prints the reason. If other nodes cannot reach the server either, the server is down: contact the "
        "storage team. Otherwise check this node's disks or network, then mount it again or reboot the node.",
    .run = check_disk_mounts};

}  // namespace ms::health
