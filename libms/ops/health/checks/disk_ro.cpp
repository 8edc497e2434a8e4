// The check disk.ro (check.h): file systems that became read-only.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/disk_names.h"
#include "health/evidence/mounts.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr std::string_view kDiskFilesystems[] = {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs"};

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

bool is_named_in_fstab(const Sysroot& root, const std::string& path) {
  const std::vector<FstabLine> lines = read_fstab(root);
  return std::any_of(lines.begin(), lines.end(), [&](const FstabLine& line) { return line.path == path; });
}

// The mount that a path lies on.
const Mount* mount_of(const std::vector<Mount>& mounts, std::string_view path) {
  while (true) {
    if (const Mount* mount = mounted_at(mounts, path)) return mount;
    if (path.size() <= 1) return nullptr;
    path = path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
  }
}

Result check_disk_ro(Evidence& evidence) {
  const Sysroot& root = evidence.root();
  const Policy& policy = evidence.policy();
  const auto text = root.read("/proc/self/mountinfo");
  if (!text) return skipped("/proc/self/mountinfo cannot be read");
  const std::vector<Mount> mounts = parse_mountinfo(*text);

  std::multimap<std::string, const KernelLine*> remounted;  // by device
  for (const KernelLine& line : evidence.kernel_log().lines) {
    if (const auto device = read_remount(Scan(line.text))) remounted.emplace(*device, &line);
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
  const std::vector<ExpectedMount> required = required_mounts(evidence);
  for (const Mount& mount : mounts) {
    if (&mount != mounted_at(mounts, mount.path) || !(mount.read_only || mount.filesystem_read_only)) continue;
    const std::string device = root.link_name("/sys/dev/block/" + mount.device);
    const std::string source = mount.source.substr(mount.source.rfind('/') + 1);
    const bool said = mount.filesystem_read_only && (remounted.contains(device) || remounted.contains(source));
    const std::string& name = device.empty() ? source : device;
    std::string why;
    Severity severity = Severity::critical;
    const auto expectation =
        std::find_if(required.begin(), required.end(), [&](const ExpectedMount& of) { return of.path == mount.path; });
    const Access access = expectation == required.end() ? Access::any : expectation->access;
    if (access == Access::read_only) {
      continue;
    } else if (access == Access::writable) {
      why = "is read-only, and expect.mounts says rw";
    } else if (const auto of_disk = disk_severity(root, name); said && (watched.contains(&mount) || of_disk)) {
      if (!watched.contains(&mount)) severity = *of_disk;
      why = "the kernel made it read-only after an error";
      for (const auto& [of, line] : remounted) {
        if (of == device || of == source) evidence.mark_judged(*line);
      }
    } else if (!watched.contains(&mount)) {
      continue;
    } else if (writable.contains(mount.path)) {
      why = "is mounted read-only, while /etc/fstab says that it is writable";
    } else if (!mount.read_only && contains(kDiskFilesystems, mount.type)) {
      // Who mounts read-only on purpose has both; only the kernel changes the file system beneath a writable mount.
      why = "its file system is read-only beneath a writable mount";
    } else if (expectation != required.end() && !is_named_in_fstab(root, mount.path)) {
      // Lustre and units of systemd: only the site knows whether that is meant.
      severity = Severity::warning;
      why = "is read-only, and nothing says whether it shall be: write rw or ro behind it in expect.mounts";
    } else {
      continue;
    }
    findings[mount.path] =
        about(mount.path, severity, fmt::format("{} ({} {})", why, mount.type, printable(mount.source)));
  }
  std::vector<Finding> list;
  for (auto& [path, finding] : findings) list.push_back(std::move(finding));
  return judged(std::move(list), plural(watched.size(), "mount") + " watched");
}

}  // namespace

extern constinit const Check kDiskRo = {
    .code = "disk.ro",
    .lane = Lane::kernel,
    .summary = "file systems that became read-only",
    .needs = "/proc/self/mountinfo",
    .explain =
        "The file systems of /, /var, /tmp, the spool directories and expect.mounts must be writable if /etc/fstab or "
        "expect.mounts (\"/scratch:rw\") requires it. A read-only mount of expect.mounts without such an entry is a "
        "warning. The check concludes that the kernel made a disk file system read-only after an error if its mount is "
        "still writable, or if the kernel log reports a read-only remount that is still in effect. Mounts that are "
        "read-only on purpose, images, and nodes without /etc/fstab are not reported. On network disks and disks that "
        "no longer exist, other mounts than those above are only a warning.",
    .remedy = "Find the preceding error in the kernel log; check the file system before remounting it.",
    .run = check_disk_ro};

}  // namespace ms::health
