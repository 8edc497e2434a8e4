// The rows of the checks of the machine itself: host, disks and mounts, links, Slurm's devices. The texts are
// ms-checks(7).
#include "health/checks.h"

namespace ms::health {
namespace {

std::vector<Check> rows_of_host() {
  return {
      {.code = "host.mce",
       .lane = Lane::kernel,
       .summary = "machine checks and memory errors that the hardware reported",
       .needs = "/dev/kmsg or EDAC",
       .explain =
           "Reads machine checks, EDAC lines and firmware (APEI) reports in the kernel's log, and ue_count and "
           "ce_count "
           "of every memory controller. An uncorrected error is critical: data was lost, and what failed once fails "
           "again. Corrected errors are the memory doing its work; more than 100 an hour of one controller are a "
           "warning, because DIMMs that die begin so.\n\n"
           "Lines of the log from before the last undrain do not count, but ue_count stays until the node boots or "
           "somebody writes to reset_counters beside it.",
       .remedy = "Replace the DIMM or processor that is named; then boot the node, which also clears the counters.",
       .run = check_host_mce},
      {.code = "host.memory",
       .lane = Lane::files,
       .summary = "memory that is missing or was taken out of use",
       .needs = "/proc/meminfo",
       .explain = "Compares MemTotal with expect.memory_mib of the policy; less than that by more than "
                  "limits.memory_missing_percent is critical: a DIMM is gone. Take the number from MemTotal of a "
                  "healthy node, "
                  "not from the data sheet. Without an expectation the memory controllers (EDAC) are asked what is "
                  "plugged in, "
                  "and too little is only a warning. Pages that the kernel took out of use after memory errors "
                  "(HardwareCorrupted) are a warning too.",
       .remedy = "Look into the board's event log for a DIMM that was mapped out; reseat or replace it.",
       .run = check_host_memory},
      {.code = "host.cpus",
       .lane = Lane::files,
       .summary = "processors that are missing or offline",
       .needs = "/sys/devices/system/cpu",
       .explain =
           "Compares the processors that are present and online with expect.cpus, or, where that is not set, those "
           "online with those present. Processors that are offline are a warning, since an administrator or a "
           "monitoring daemon may have taken them out; hyper-threads that are switched off by smt/control are not "
           "missed. Fewer present than expected is critical: the firmware hides them.",
       .remedy = "Bring them online by /sys/devices/system/cpu/cpuN/online, or look into the firmware's settings.",
       .run = check_host_cpus},
      {.code = "host.clock",
       .lane = Lane::files,
       .summary = "a clock that nothing keeps, or that may be far off",
       .needs = "adjtimex(2)",
       .explain =
           "Asks the kernel how good its clock is. It is a warning where no NTP or PTP daemon disciplines it, or where "
           "the estimated or the greatest possible error is above limits.clock_error. A clock that is off breaks "
           "MUNGE credentials, which live for five minutes, and makes traces of several nodes impossible to compare.",
       .remedy = "Start or repair the node's time service (chronyc tracking, timedatectl).",
       .run = check_host_clock},
      {.code = "host.hung",
       .lane = Lane::kernel,
       .summary = "tasks, processors or a kernel that got stuck",
       .needs = "/dev/kmsg",
       .user_can_cause = true,
       .explain =
           "Looks for blocked tasks, soft and hard lockups, RCU stalls, and bugs of the kernel itself (Oops) in its "
           "log. Blocked tasks and stalls count for a day; they are often a job that waits for a slow file system, so "
           "this only warns. A kernel that hit a bug of its own works on with damaged parts: it counts until the node "
           "boots.",
       .remedy = "Read the kernel's log around the line; a node whose kernel hit a bug should be booted.",
       .run = check_host_hung},
      {.code = "host.space",
       .lane = Lane::files,
       .summary = "file systems that are nearly full",
       .user_can_cause = true,
       .explain =
           "Looks at bytes and inodes of /tmp, /dev/shm, slurmd's spool, /var and the root file system; less free than "
           "limits.space_free_percent is a warning. Several of these on one file system are one. Jobs fill these "
           "places, so this never drains a node; but the next job may fail because of it.",
       .remedy = "Find what was left behind (du -xm, lsof +L1) and clean up in the epilog.",
       .run = check_host_space},
  };
}

std::vector<Check> rows_of_disks() {
  return {
      {.code = "disk.mounts",
       .lane = Lane::mounts,
       .summary = "mounts that are missing or do not answer",
       .needs = "/proc/self/mountinfo",
       .deadline_s = 30,  // more than any sensible limits.mount_deadline, which is what cuts
       .explain =
           "Every path of expect.mounts must be a mount point and must answer within limits.mount_deadline: statfs, "
           "stat, and the first names of its directory. Other mounts of network and disk file systems are asked the "
           "same, but one that does not answer is only a warning, which never drains: users can be behind it, also "
           "behind its server. Name in expect.mounts what jobs cannot do without.\n\n"
           "Each mount is asked by a process of its own, all at once, so one dead server costs one deadline. A process "
           "that "
           "hangs cannot always be killed; it is left behind, and while it still waits later runs do not ask that "
           "mount "
           "again. What users mount or have mounted is only asked where it is expected: FUSE, all on and below "
           "a mount point of autofs, mount points that /etc/fstab gives to users, and mounts of udisks.\n\n"
           "A path of expect.mounts must be written as the kernel shows it in /proc/self/mountinfo, without symbolic "
           "links. Permission denied counts as an answer.",
       .remedy = "See whether the server is reachable from other nodes; if so, remount it or boot this node.",
       .run = check_disk_mounts},
      {.code = "disk.errors",
       .lane = Lane::kernel,
       .summary = "disks and file systems that the kernel complains of",
       .needs = "/dev/kmsg",
       .explain =
           "Looks in the kernel's log for I/O and medium errors, NVMe controllers that went down or were removed, "
           "failed "
           "members of arrays, and errors of ext4, XFS and Btrfs. Only disks of this node count: loop devices, USB, "
           "optical and removable drives are passed over, since a user may be behind them; disks across a network, and "
           "ones that are no longer there, warn. Refused discards are no error.",
       .remedy = "Ask the disk (smartctl -x, nvme smart-log); replace it, or check its file system and boot the node.",
       .run = check_disk_errors},
      {.code = "disk.ro",
       .lane = Lane::kernel,
       .summary = "file systems that became read-only",
       .needs = "/proc/self/mountinfo",
       .explain =
           "The mounts below /, /var, /tmp, the spool directories and expect.mounts must be writable if /etc/fstab "
           "says "
           "so. A disk file system that is read-only beneath a writable mount, or that the kernel's log says was "
           "remounted read-only and still is, went so after an error. Mounts that are read-only on purpose, images and "
           "nodes without an /etc/fstab are not complained of.",
       .remedy = "Find the error that came before in the kernel's log; check the file system before remounting it.",
       .run = check_disk_readonly},
  };
}

std::vector<Check> rows_of_links() {
  return {
      {.code = "net.link",
       .lane = Lane::files,
       .summary = "links that are down, missing or slow",
       .needs = "/sys/class/net or /sys/class/infiniband",
       .explain =
           "Every link of expect.links, an interface (eth0) or a port of an adapter (mlx5_0/1), must be there, up and "
           "at "
           "least as fast as expect.link_gbps; else it is critical. Where nothing is expected, this only warns: of "
           "ports "
           "that have a signal and are not active, which mostly means that no subnet manager answers, and of links "
           "that "
           "were up within the last day. A port that polls without ever having been up may simply have no cable.",
       .remedy = "Check cable, transceiver and switch port; compare with ibstat or ethtool on a healthy node.",
       .run = check_net_link},
      {.code = "net.flaps",
       .lane = Lane::files,
       .summary = "links that keep going down",
       .needs = "carrier_down_count or link_downed",
       .explain = "Counts how often every physical interface and port went down since the value that an earlier run "
                  "kept, over "
                  "a day; more than limits.link_flaps_per_day is a warning. Collective communication stalls for "
                  "seconds at each "
                  "of them. Counters that went backwards (a driver was loaded again) start anew.",
       .remedy = "Clean or replace cable and transceiver; if the other end flaps alike, suspect the switch port.",
       .run = check_net_flaps},
      {.code = "net.errors",
       .lane = Lane::files,
       .summary = "damaged packets on the wire",
       .needs = "error counters in sysfs",
       .explain = "Watches symbol errors, link recoveries, integrity errors, damaged packets and overruns of ports, "
                  "and checksum "
                  "and frame errors of interfaces, over an hour since an earlier run; more than "
                  "limits.link_errors_per_hour of "
                  "one of them is a warning. A few are normal on optical links. Counters that this function of the "
                  "adapter may "
                  "not read are passed over.",
       .remedy = "Clean or replace cable and transceiver, and look at the same counters of the switch port.",
       .run = check_net_errors},
      {.code = "net.pcie",
       .lane = Lane::files,
       .summary = "network adapters and NVMe disks with too few PCIe lanes",
       .needs = "/sys/bus/pci",
       .explain =
           "Compares the width of the PCI Express link of network adapters and NVMe disks, and for network adapters "
           "also "
           "its speed, with what the device and the bridge above it can both do. Fewer lanes are a warning, half or "
           "less "
           "of them critical: the device works, but every transfer is slow, and so is every node that waits for it.",
       .remedy = "Boot the node; if that does not help, reseat the card or its riser.",
       .run = check_net_pcie},
      {.code = "slurm.gres",
       .lane = Lane::files,
       .summary = "devices that Slurm gives to jobs and that are not there",
       .needs = "gres.conf",
       .explain =
           "Every File= of this node in gres.conf must be a device, and Count= must be how many there are. slurmd only "
           "looks when it starts, so that a device that went away later is still given to jobs, which then fail at "
           "their "
           "start.",
       .remedy = "Find out why the device is gone (the driver, lspci); then restart slurmd.",
       .run = check_slurm_gres},
  };
}

}  // namespace

const std::vector<Check>& host_checks() {
  static const std::vector<Check> kRows = [] {
    std::vector<Check> all = rows_of_host();
    for (const std::vector<Check>& part : {rows_of_disks(), rows_of_links()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return kRows;
}

}  // namespace ms::health
