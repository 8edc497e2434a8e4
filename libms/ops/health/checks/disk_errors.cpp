// The check disk.errors (check.h): disks and file systems that the kernel reports as failing. Lines are read strictly
// (scan.h), and only devices of this node count (disk_names.h): nothing that a user can plug in or mount.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/disk_names.h"
#include "health/evidence/growth.h"
#include "health/evidence/md_arrays.h"
#include "health/evidence/refused_requests.h"
#include "health/evidence/scan.h"
#include "health/evidence/storage_lines.h"

namespace ms::health {
namespace {

constexpr std::string_view kMediumError = "medium error";
constexpr std::string_view kOfCachedBlock = "I/O error of a cached block";
constexpr std::string_view kIoError = "I/O error";
constexpr std::string_view kMemberFailed = "a disk of the array failed";
constexpr std::string_view kWentDown = "the controller went down";

// block/blk-core.c, blk_errors[]. What is not here says nothing of the disk: reservations, full thin pools, resources.
constexpr KernelText kBlockErrors[] = {
    {"I/O error, dev ", Severity::critical, kIoError},
    {"critical medium error, dev ", Severity::critical, kMediumError},
    {"critical target error, dev ", Severity::critical, "the disk refused a request"},
    {"device offline error, dev ", Severity::critical, "the disk is offline"},
    {"timeout error, dev ", Severity::warning, "a request timed out"},
    {"recoverable transport error, dev ", Severity::warning, "the path to the disk failed"},
    {"protection error, dev ", Severity::warning, "a checksum on the way to the disk was wrong"},
};

// A disk that was detached is removed, too; the disk is this machine's own if kNvmePcie has a line of it.
constexpr KernelText kNvme[] = {
    {"Device not ready; aborting reset", Severity::critical, "the controller did not come back from a reset"},
    {"Removing after probe failure status: ", Severity::critical, "the controller was removed"},
};
// Only the driver of disks on PCIe prints these.
constexpr KernelText kNvmePcie[] = {
    {"controller is down; will reset", Severity::critical, kWentDown},
    {"Disabling device after reset failure: ", Severity::critical, "the controller was removed after a failed reset"},
};

constexpr KernelText kXfs[] = {
    {"Metadata corruption detected at ", Severity::critical, "XFS found damaged metadata"},
    {"Metadata CRC error detected at ", Severity::critical, "XFS found damaged metadata"},
    {"Corruption of in-memory data", Severity::critical, "XFS shut down: damage in memory"},
    {"Corruption of on-disk metadata", Severity::critical, "XFS shut down: damage on disk"},
    {"Filesystem has been shut down due to ", Severity::critical, "XFS shut down"},
    {"Log I/O ", Severity::critical, "XFS could not write its log"},
    {"log I/O error", Severity::critical, "XFS could not write its log"},
    {"metadata I/O error", Severity::critical, "XFS could not read or write metadata"},
    {"Metadata I/O Error (0x1)", Severity::critical, "XFS shut down: it could not write metadata"},
    {"Block device removal (0x20)", Severity::critical, "XFS shut down: its disk was removed"},
    {"log mount/recovery failed", Severity::warning, "XFS could not recover its log"},
};

constexpr KernelText kExt4[] = {
    {"warning: mounting fs with errors", Severity::warning, "ext4 was mounted with errors"},
    {"Remounting filesystem read-only", Severity::warning, "ext4 went read-only"},
};

const KernelText* which(Scan& scan, std::span<const KernelText> kinds) {
  const auto found =
      std::find_if(kinds.begin(), kinds.end(), [&](const KernelText& k) { return scan.literal(k.text); });
  return found == kinds.end() ? nullptr : &*found;
}

struct DiskLine {
  std::string_view device;
  Severity severity = Severity::critical;
  std::string_view message;
  bool is_own = false;  // it is a disk of this machine, also if it is gone by now
};

std::optional<DiskLine> read_block_error(Scan scan) {
  scan.one_of({"blk_update_request: ", "print_req_error: "});
  const KernelText* kind = which(scan, kBlockErrors);
  if (kind == nullptr) {
    if (!scan.literal("Buffer I/O error on dev ")) return std::nullopt;
    const std::string_view device = scan.device();
    if (!scan.literal(", logical block ") || !scan.number()) return std::nullopt;
    return DiskLine{device, Severity::critical, kOfCachedBlock};
  }
  const std::string_view device = scan.device();
  if (!scan.literal(", sector ") || !scan.number()) return std::nullopt;
  // Disks that promise to discard or zero blocks and then refuse it are common, and lose nothing.
  for (const std::string_view harmless : {"(DISCARD)", "(WRITE_ZEROES)", "(WRITE_SAME)", "(SECURE_ERASE)"}) {
    if (scan.rest().find(harmless) != std::string_view::npos) return std::nullopt;
  }
  return DiskLine{device, kind->severity, kind->message};
}

std::optional<DiskLine> read_controller_error(Scan scan) {
  if (scan.literal("nvme ")) {
    const std::string_view device = scan.device();
    if (!scan.literal(": ")) return std::nullopt;
    const KernelText* own = which(scan, kNvmePcie);
    const KernelText* kind = own != nullptr ? own : which(scan, kNvme);
    if (kind == nullptr) return std::nullopt;
    return DiskLine{device, kind->severity, kind->message, own != nullptr};
  }
  if (scan.literal("md/raid")) {
    scan.one_of({"10", "1", ""});
    if (!scan.literal(":")) return std::nullopt;
    const std::string_view array = scan.device();
    if (!scan.literal(": Disk failure on ") || scan.device().empty()) return std::nullopt;
    return DiskLine{array, Severity::critical, kMemberFailed};
  }
  return std::nullopt;
}

std::optional<DiskLine> read_filesystem_error(Scan scan) {
  if (scan.one_of({"EXT4-fs error (device ", "EXT3-fs error (device ", "EXT2-fs error (device "})) {
    const std::string_view device = scan.device();
    if (!scan.literal("): ") && !scan.literal(") in ")) return std::nullopt;
    return DiskLine{device, Severity::critical, "ext4 found damaged structures or failed to write"};
  }
  if (scan.literal("EXT4-fs (")) {
    const std::string_view device = scan.device();
    const KernelText* kind = scan.literal("): ") ? which(scan, kExt4) : nullptr;
    return kind == nullptr ? std::nullopt : std::optional(DiskLine{device, kind->severity, kind->message});
  }
  if (scan.literal("Aborting journal on device ")) {
    std::string_view device = scan.device();  // "sda1-8": with the journal's inode
    device = device.substr(0, device.rfind('-'));
    return DiskLine{device, Severity::critical, "the file system's journal was aborted"};
  }
  if (scan.literal("XFS (")) {
    const std::string_view device = scan.device();
    const KernelText* kind = scan.literal("): ") ? which(scan, kXfs) : nullptr;
    return kind == nullptr ? std::nullopt : std::optional(DiskLine{device, kind->severity, kind->message});
  }
  if (scan.literal("BTRFS warning (device ")) {
    const std::string_view device = scan.device();
    if (!scan.literal("): csum failed ")) return std::nullopt;
    return DiskLine{device, Severity::warning, "Btrfs read data with a wrong checksum"};
  }
  const bool fatal = scan.one_of({"BTRFS critical (device ", "BTRFS: error (device "});
  if (fatal || scan.literal("BTRFS error (device ")) {
    const std::string_view device = scan.device();
    if (scan.literal(": state ") && scan.device().empty()) return std::nullopt;
    const bool counted = scan.literal("): bdev ");
    if (!counted && !scan.literal("): ") && !scan.literal(") in ")) return std::nullopt;
    return DiskLine{device, fatal || counted ? Severity::critical : Severity::warning, "Btrfs reported an error"};
  }
  return std::nullopt;
}

// "ata1.00: failed command: READ FPDMA QUEUED". Which disk that is, the block layer's own line tells, if it mattered.
bool read_ata(Scan scan, LogTally& tally) {
  if (!scan.literal("ata")) return false;
  const auto port = scan.number();
  if (!port || !scan.literal(".") || !scan.number() || !scan.literal(": failed command: ")) return false;
  tally.add(Severity::warning, fmt::format("ata{}", *port), "a command to the disk failed");
  return true;
}

// Timeouts that the NVMe driver mends itself: it asks again, and no error reaches the block layer. Each holds I/O up
// for 30 s.
class NvmeTimeouts {
 public:
  // "nvme nvme1: I/O tag 1 (1001) opcode 0x2 (I/O Cmd) QID 7 timeout, aborting req_op:READ(0) size:131072", and of
  // older kernels "nvme nvme1: I/O 1 QID 5 timeout, reset controller".
  bool read(Scan scan, double when_s) {
    if (!scan.literal("nvme ")) return false;
    const std::string_view device = scan.device();
    if (!scan.literal(": I/O ")) return false;
    constexpr std::string_view kTimeout = " timeout, ";
    const std::size_t at = scan.rest().find(kTimeout);
    if (at == std::string_view::npos) return false;
    scan = Scan(scan.rest().substr(at + kTimeout.size()));
    const bool is_reset = scan.one_of({"reset controller", "disable controller"});
    if (!is_reset && !scan.one_of({"aborting", "completion polled"})) return false;
    Device& of_device = devices_[std::string(device)];
    of_device.again |= of_device.timeouts > 0 && when_s - of_device.last_s < kHour_s;
    of_device.last_s = when_s;
    ++of_device.timeouts;
    of_device.resets += is_reset ? 1 : 0;
    return true;
  }

  void judge(const Sysroot& root, std::vector<Finding>& findings) const {
    for (const auto& [name, device] : devices_) {
      if (!disk_severity(root, name) || (!device.again && device.resets == 0)) continue;
      findings.push_back(
          about(name, Severity::warning,
                fmt::format("its I/O timed out {}{}", plural(device.timeouts, "time"),
                            device.resets == 0 ? "" : ", controller reset " + plural(device.resets, "time")),
                device.timeouts, 1.0, "timeouts"));
    }
  }

 private:
  struct Device {
    std::size_t timeouts = 0, resets = 0;
    double last_s = 0;
    bool again = false;  // within an hour
  };
  std::map<std::string, Device> devices_;
};

// Whether the state of the node now contradicts an error in the log.
class Recovered {
 public:
  Recovered(const Sysroot& root, const KernelLog& log)
      : root_(root), arrays_(read_md_arrays(root).value_or(std::vector<MdArray>())) {
    for (const KernelLine& line : log.lines) {
      read_multipath(Scan(line.text), line.since_boot_s);
      const auto error = read_controller_error(Scan(line.text));
      if (error && error->message == kWentDown) ++downs_[std::string(error->device)];
    }
  }

  // Returns the words for it; empty: it does not.
  std::string_view contradicts(const DiskLine& line, double at_s) const {
    const std::string device(line.device);
    if (line.message == kWentDown) {
      const bool is_live = root_.read(fmt::format("/sys/class/nvme/{}/state", device), 64) == "live";
      return is_live && downs_.at(device) == 1 ? ", once, and is live again" : "";
    }
    if (line.message == kMemberFailed) {
      const bool is_whole = std::ranges::any_of(arrays_, [&](const MdArray& array) {
        return array.name == device && array.wanted && *array.working >= *array.wanted;
      });
      return is_whole ? ", and the array is whole again" : "";
    }
    // An error that every path has is logged of the multipath device, too.
    const bool may_be_path = line.message == kIoError || line.message == kOfCachedBlock;
    return may_be_path && works_since(disk_of(device)) >= at_s ? " of a path that multipath reinstated" : "";
  }

 private:
  // "device-mapper: multipath: 253:2: Reinstating path 8:32."
  void read_multipath(Scan scan, double at_s) {
    if (!scan.literal("device-mapper: multipath: ")) return;
    scan.name();  // "253:2:"
    const bool works = scan.literal(" Reinstating path ");
    if (!works && !scan.literal(" Failing path ")) return;
    std::string_view path = scan.name();
    if (path.ends_with('.')) path.remove_suffix(1);
    if (works) {
      paths_[std::string(path)] = at_s;
    } else {
      paths_.erase(std::string(path));
    }
  }
  // When multipath reinstated the disk's path for the last time; -1: it did not, or the path failed again.
  double works_since(const std::string& disk) const {
    const auto since = [&](const std::string& number) {
      const auto path = paths_.find(number);
      return path == paths_.end() ? -1 : path->second;
    };
    if (const auto number = root_.read(fmt::format("/sys/block/{}/dev", disk), 64)) return since(*number);
    // The first 16 SCSI disks have fixed numbers.
    constexpr int kMajor = 8, kMinorsPerDisk = 16;
    const bool is_known = disk.size() == 3 && disk.starts_with("sd") && disk[2] >= 'a' && disk[2] <= 'p';
    return is_known ? since(fmt::format("{}:{}", kMajor, (disk[2] - 'a') * kMinorsPerDisk)) : -1;
  }

  const Sysroot& root_;
  std::vector<MdArray> arrays_;
  std::map<std::string, int> downs_;     // of a controller
  std::map<std::string, double> paths_;  // since when they work again, by device number
};

Result check_disk_errors(Evidence& evidence) {
  const KernelLog& log = evidence.kernel_log();
  if (!log.error.empty()) return skipped("the kernel's log cannot be read: " + log.error);
  LogTally tally;
  NvmeTimeouts timeouts;
  RefusedRequests refused;
  const Recovered recovered(evidence.root(), log);
  for (const KernelLine& line : log.lines) {
    const Scan scan(line.text);
    refused.read(scan, line.since_boot_s);
    std::optional<DiskLine> found = read_block_error(scan);
    const DiskRefusal* refusal = found ? refused.explain(disk_of(found->device), line.since_boot_s) : nullptr;
    if (!found) found = read_controller_error(scan);
    if (!found) found = read_filesystem_error(scan);
    if (!found) {
      if (timeouts.read(scan, line.since_boot_s) || read_ata(scan, tally) || read_storage(scan, tally))
        evidence.mark_judged(line);
      continue;
    }
    if (refusal != nullptr) {
      evidence.mark_judged(line);
      if (refusal->severity == Severity::note) continue;
      found->severity = refusal->severity;
      found->message = refusal->message;
    }
    const std::optional<Severity> severity =
        found->is_own ? Severity::critical : disk_severity(evidence.root(), found->device);
    if (!severity) continue;
    const std::string_view recovery = recovered.contradicts(*found, line.since_boot_s);
    tally.add(std::min({*severity, found->severity, recovery.empty() ? Severity::critical : Severity::warning}),
              std::string(found->device), fmt::format("{}{}", found->message, recovery));
    evidence.mark_judged(line);
  }
  std::vector<Finding> findings = tally.findings();
  timeouts.judge(evidence.root(), findings);
  return judged(std::move(findings));
}

}  // namespace

extern constinit const Check kDiskErrors = {
    .code = "disk.errors",
    .lane = Lane::kernel,
    .summary = "errors of disks and file systems in the kernel log",
    .needs = "/dev/kmsg",
    .explain =
        "Looks in the kernel log for I/O and medium errors, NVMe controllers that went down or were removed, failed "
        "members of arrays, and errors of ext4, XFS and Btrfs. NVMe timeouts are a warning if the controller was "
        "reset or two came within an hour. Loop devices and USB, optical and removable drives are "
        "ignored, since users may control them. Network disks and disks that no longer exist only cause warnings, "
        "unless an NVMe "
        "controller on PCIe went down before. What the present state contradicts is a warning too: an NVMe controller "
        "that went down once and is live, an array that is whole again, a path that multipath reinstated. Errors of a "
        "disk that denies access, because it is locked, do not count; those of a disk that is write-protected or being "
        "erased, or of blocks beyond its end, are a warning. ZFS pools that lost a disk or were suspended, and RAID "
        "and SAS controllers that report a failure, are a warning. Rejected discards and WRITE SAME are not errors.",
    .remedy =
        "Query the disk (smartctl -x, nvme smart-log). If it reports a failure, or the errors recur, replace it; "
        "otherwise check its file system and reboot the node.",
    .run = check_disk_errors};

}  // namespace ms::health
