// Mounts that hang or are gone, and file systems that became read-only: disk.mounts and disk.ro. Users can have network
// file systems mounted (autofs, fstab's "user", udisks), also of servers of their own: what disk.mounts finds is
// critical only for the mounts that the site expects.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>

#include "base/text.h"
#include "health/checks.h"
#include "health/disk_names.h"
#include "health/mount_probe.h"
#include "health/scan.h"

namespace ms::health {
namespace {

// File systems that are asked also where they are not expected. Never fuse, whose servers are users' programs, nor
// autofs, which mounts when asked.
constexpr std::string_view kAskedFilesystems[] = {
    "nfs",   "nfs4", "lustre", "gpfs",  "beegfs", "ceph", "wekafs", "cifs", "smb3",  "9p",  "afs",  "virtiofs",
    "panfs", "gfs2", "ocfs2",  "pvfs2", "ext2",   "ext3", "ext4",   "xfs",  "btrfs", "zfs", "f2fs", "bcachefs"};
constexpr std::string_view kDiskFilesystems[] = {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs"};

template <class List>
bool contains(const List& list, std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::vector<std::string> expected_mounts(const Evidence& evidence) {
  std::vector<std::string> paths;
  for (const std::string& path : evidence.policy().expect.mounts) {
    if (path.starts_with('/')) paths.push_back(without_slash(path));
  }
  return paths;
}

// The last mount on a path hides those before it.
const Mount* mounted_at(const std::vector<Mount>& mounts, std::string_view path) {
  const auto found = std::find_if(mounts.rbegin(), mounts.rend(), [&](const Mount& m) { return m.path == path; });
  return found == mounts.rend() ? nullptr : &*found;
}

// Errors that tell of a file system that no longer works, whoever asks.
bool is_trouble(int error) {
  constexpr int kTroubles[] = {ESTALE,    EIO,     EHOSTDOWN, EHOSTUNREACH, ENETUNREACH, ETIMEDOUT,    ENOTCONN,
                               ESHUTDOWN, EUCLEAN, EREMOTEIO, ENODEV,       ENXIO,       ECONNREFUSED, ECONNRESET};
  return std::find(std::begin(kTroubles), std::end(kTroubles), error) != std::end(kTroubles);
}

struct Asked {
  std::string path;
  bool expected = false;
  std::string what;  // "nfs4 server:/export"
};

struct FstabLine {
  std::string path;
  std::vector<std::string> options;
};

std::vector<FstabLine> read_fstab(const Sysroot& root) {
  std::vector<FstabLine> lines;
  const std::string text = root.read("/etc/fstab").value_or("");
  for (std::string line : split(text, '\n')) {
    std::replace(line.begin(), line.end(), '\t', ' ');
    std::vector<std::string> words = split(line, ' ');
    std::erase(words, "");
    if (words.size() < 4 || words[0].starts_with('#') || !words[1].starts_with('/')) continue;
    lines.push_back({without_slash(words[1]), split(words[3], ',')});
  }
  return lines;
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

// The expected ones first, then every other that users are not known to be behind, once a file system.
std::vector<Asked> to_be_asked(const Sysroot& root, const std::vector<Mount>& mounts,
                               const std::vector<std::string>& expected) {
  const std::set<std::string> of_users = mounted_by_users(root);
  std::vector<Asked> asked;
  std::set<std::string> devices;
  for (const std::string& path : expected) {
    const Mount* mount = mounted_at(mounts, path);
    if (mount == nullptr || (mount->type != "autofs" && !devices.insert(mount->device).second)) continue;
    asked.push_back({path, true, fmt::format("{} {}", mount->type, printable(mount->source))});
  }
  for (const Mount& mount : mounts) {
    if (!contains(kAskedFilesystems, mount.type) || mount.source.starts_with("/dev/loop")) continue;
    if (of_users.contains(mount.path) || is_automounted(mounts, mount.path)) continue;
    if (&mount != mounted_at(mounts, mount.path) || !devices.insert(mount.device).second) continue;
    asked.push_back({mount.path, false, fmt::format("{} {}", mount.type, printable(mount.source))});
  }
  return asked;
}

Severity severity_of(const Asked& asked) { return asked.expected ? Severity::critical : Severity::warning; }

Finding silent(const Asked& asked, double deadline_s, std::string_view since) {
  return {.severity = severity_of(asked),
          .entity = asked.path,
          .message = fmt::format("{} did not answer {}", asked.what, since),
          .measured = deadline_s,
          .limit = deadline_s,
          .unit = "s"};
}

std::optional<std::string_view> read_remount(Scan scan) {
  if (scan.one_of({"EXT4-fs (", "EXT3-fs (", "EXT2-fs ("})) {
    const std::string_view device = scan.device();
    if (scan.literal("): Remounting filesystem read-only")) return device;
  } else if (scan.one_of({"BTRFS info (device ", "BTRFS warning (device "})) {
    const std::string_view device = scan.device();
    if (scan.literal(": state ")) scan.device();
    if (scan.literal("): forced readonly")) return device;
  }
  return std::nullopt;
}

// Mount points of /etc/fstab that are not to be read-only.
std::set<std::string> writable_by_fstab(const Sysroot& root) {
  std::set<std::string> paths;
  for (const FstabLine& line : read_fstab(root)) {
    if (!contains(line.options, "ro")) paths.insert(line.path);
  }
  return paths;
}

// The mount that a path lies on.
const Mount* mount_of(const std::vector<Mount>& mounts, std::string_view path) {
  while (true) {
    if (const Mount* mount = mounted_at(mounts, path)) return mount;
    if (path.size() <= 1) return nullptr;
    path = path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
  }
}

}  // namespace

Result check_disk_mounts(Evidence& evidence) {
  const Sysroot& root = evidence.root();
  const std::vector<std::string> expected = expected_mounts(evidence);
  const auto text = root.read("/proc/self/mountinfo");
  if (!text) return skipped("/proc/self/mountinfo cannot be read");
  const std::vector<Mount> mounts = parse_mountinfo(*text);
  std::vector<Finding> findings;
  for (const std::string& path : expected) {
    if (mounted_at(mounts, path) != nullptr) continue;
    findings.push_back({.severity = Severity::critical, .entity = path, .message = "is not mounted"});
  }
  const std::vector<Asked> asked = to_be_asked(root, mounts, expected);
  if (asked.empty() && expected.empty())
    return skipped("nothing is mounted here that could hang, and none is expected");

  // What an earlier run asked and left behind still waits: asking again would leave another.
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
  std::size_t not_asked = 0;
  for (std::size_t i = 0; i < now.size(); ++i) {
    const Answer& answer = answers[i];
    if (!answer.answered) {
      findings.push_back(silent(now[i], deadline_s, fmt::format("within {}", format_duration(deadline_s))));
      if (answer.left_behind > 0) {
        keep["disk.mounts waits " + now[i].path] = {static_cast<double>(answer.left_behind), evidence.now_wall_s()};
      }
    } else if (is_trouble(answer.error) || (now[i].expected && (answer.error == ENOENT || answer.error == ENOTDIR))) {
      findings.push_back({.severity = severity_of(now[i]),
                          .entity = now[i].path,
                          .message = fmt::format("{}: {}", now[i].what, errno_text(answer.error))});
    } else if (answer.error == EAGAIN || answer.error == ENOMEM) {
      ++not_asked;
    }
  }
  Result result = judged(std::move(findings), fmt::format("{} answered{}", plural(now.size() - not_asked, "mount"),
                                                          not_asked ? fmt::format(", {} not asked", not_asked) : ""));
  result.counters = std::move(keep);
  return result;
}

Result check_disk_readonly(Evidence& evidence) {
  const Sysroot& root = evidence.root();
  const Policy& policy = evidence.policy();
  const auto text = root.read("/proc/self/mountinfo");
  if (!text) return skipped("/proc/self/mountinfo cannot be read");
  const std::vector<Mount> mounts = parse_mountinfo(*text);

  std::set<std::string> remounted;  // devices
  for (const KernelLine& line : evidence.kernel_log().lines) {
    if (const auto device = read_remount(Scan(line.text))) remounted.insert(std::string(*device));
  }
  std::set<const Mount*> watched;
  std::vector<std::string> paths = {
      "/", "/var", "/tmp", "/var/tmp", "/var/spool", "/var/spool/slurmd", policy.paths.state, policy.paths.spool};
  const std::vector<std::string> expected = expected_mounts(evidence);
  paths.insert(paths.end(), expected.begin(), expected.end());
  for (const std::string& path : paths) watched.insert(mount_of(mounts, without_slash(path)));
  watched.erase(nullptr);

  const std::set<std::string> writable = writable_by_fstab(root);
  std::map<std::string, Finding> findings;
  for (const Mount& mount : mounts) {
    if (&mount != mounted_at(mounts, mount.path) || !(mount.read_only || mount.filesystem_read_only)) continue;
    const std::string device = root.link_name("/sys/dev/block/" + mount.device);
    const std::string source = mount.source.substr(mount.source.rfind('/') + 1);
    const bool said = mount.filesystem_read_only && (remounted.contains(device) || remounted.contains(source));
    const std::string& name = device.empty() ? source : device;
    std::string why;
    if (said && (watched.contains(&mount) || disk_severity(root, name) == Severity::critical)) {
      why = "the kernel made it read-only after an error";
    } else if (!watched.contains(&mount)) {
      continue;
    } else if (writable.contains(mount.path)) {
      why = "is read-only, but not in /etc/fstab";
    } else if (!mount.read_only && contains(kDiskFilesystems, mount.type)) {
      // Who mounts read-only on purpose has both; only the kernel changes the file system beneath a writable mount.
      why = "its file system is read-only beneath a writable mount";
    } else {
      continue;
    }
    findings[mount.path] = {.severity = Severity::critical,
                            .entity = mount.path,
                            .message = fmt::format("{} ({} {})", why, mount.type, printable(mount.source))};
  }
  std::vector<Finding> list;
  for (auto& [path, finding] : findings) list.push_back(std::move(finding));
  return judged(std::move(list), plural(watched.size(), "mount") + " watched");
}

}  // namespace ms::health
