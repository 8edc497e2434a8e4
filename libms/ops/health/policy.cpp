#include "health/policy.h"

#include <algorithm>

namespace ms::health {
namespace {

constexpr Field<ActConfig> kActFields[] = {
    {.key = "mode",
     .member = &ActConfig::mode,
     .doc = "What a critical finding does. observe: only log what would be done. act: drain the node and start the job "
            "elsewhere.",
     .choices = {"observe", "act"}},
    {"allow", &ActConfig::allow,
     "Codes of checks whose critical findings may drain the node. The drain reason begins with the finding whose code "
     "is first in this list, so list the most specific codes first. Checks that a user's job can cause to fail are "
     "rejected here. At the start of a job, a finding on one GPU drains only if the GPU belongs to the job. GPUs are "
     "matched by SLURM_JOB_GPUS, which equals NVML's numbering only if gres.conf lists the devices in order."},
    {"allow_off", &ActConfig::allow_off, "Allow jobs to use --ms-preflight=off. Otherwise the option is ignored."},
    {"kill_switch", &ActConfig::kill_switch,
     "While this file exists, nothing is checked or done at the start and end of jobs."},
    {"max_drained_percent", &ActConfig::max_drained_percent,
     "Maximum percentage of the cluster's nodes that ms-diag may have drained at a time, rounded down but at least one "
     "node.",
     Unit::none, 0, 100},
    {"max_drained", &ActConfig::max_drained,
     "Maximum number of nodes that ms-diag may have drained at a time, regardless of the cluster size.", Unit::none, 0,
     100'000},
};

constexpr Field<PrologConfig> kPrologFields[] = {
    {"deadline", &PrologConfig::deadline_s,
     "Time limit for all checks of one prolog together. Unfinished checks are aborted.", Unit::seconds, 0.5, 8},
    {"epilog_interval", &PrologConfig::epilog_interval_s,
     "Minimum time on a node between check runs after jobs that failed, were cancelled or requeued.", Unit::seconds, 0,
     7 * 86'400},
};

constexpr Field<PathsConfig> kPathsFields[] = {
    {"state", &PathsConfig::state,
     "Local directory, accessible only to root, for a node's counters, drains and history."},
    {"site", &PathsConfig::site,
     "Directory accessible only to root (0700) on storage that all nodes share. It holds the drains of all nodes for "
     "ms-diag history --site. Empty: each node records only its own."},
    {"spool", &PathsConfig::spool, "Local directory for events to be sent by ms-diag notify."},
    {"notes", &PathsConfig::notes,
     "Local directory for the notes shown to restarted jobs, and for the time of the "
     "last undrain, which users may read."},
    {"scontrol", &PathsConfig::scontrol, "Path of Slurm's scontrol command."},
    {"slurm_conf", &PathsConfig::slurm_conf, "The slurm.conf for scontrol. Empty: Slurm's default."},
    {"gres_conf", &PathsConfig::gres_conf, "Slurm's gres.conf, which defines the number of GPUs of this node."},
    {"checks", &PathsConfig::checks,
     "Directory of the site's own checks, see SITE CHECKS in ms-diag(1). It and all files in it must belong to root "
     "and be writable only by root. Empty: none."},
    {"nvml", &PathsConfig::nvml,
     "NVIDIA's management library (NVML), loaded if it exists. Empty: the first libnvidia-ml.so.1 in "
     "/usr/lib/x86_64-linux-gnu, /usr/lib/aarch64-linux-gnu, /usr/lib64 and /usr/local/nvidia/lib64."},
    {"perftest", &PathsConfig::perftest, "Path of ib_write_bw from perftest, used by perf.rdma and perf.rnics."},
    {"smartctl", &PathsConfig::smartctl, "Path of smartctl from smartmontools, used by disk.smart."},
    {"ipmitool", &PathsConfig::ipmitool, "Path of ipmitool, used by host.bmc."},
    {"dcgmi", &PathsConfig::dcgmi, "Path of dcgmi from NVIDIA DCGM, used by gpu.dcgm."},
    {"nvidia_smi", &PathsConfig::nvidia_smi,
     "Path of nvidia-smi, or of a program called like it, used by ms-diag repair to reset GPUs."},
    {"sysroot", &PathsConfig::sysroot, "Root of the file tree that checks read. Values other than / are for tests."},
};

constexpr Field<ExpectConfig> kExpectFields[] = {
    {"gpus", &ExpectConfig::gpus, "Number of GPUs; -1: as in gres.conf, else as on the PCI bus.", Unit::none, -1, 1024},
    {"nvlinks_per_gpu", &ExpectConfig::nvlinks_per_gpu,
     "Number of NVLinks per GPU that must be up; -1: as many as the GPU reports.", Unit::none, -1, 1024},
    {"cpus", &ExpectConfig::cpus, "Number of CPUs that must be online; -1: all that are present.", Unit::none, -1,
     65'536},
    {"memory_mib", &ExpectConfig::memory_mib,
     "Memory of a healthy node in MiB, as MemTotal in /proc/meminfo; -1: do not check.", Unit::none, -1, 1e12},
    {"mounts", &ExpectConfig::mounts,
     "Mount points that must be mounted and responsive, as absolute paths. Append :rw if the mount must be writable, "
     ":ro if it may be read-only."},
    {"links", &ExpectConfig::links, "Network interfaces (eth0) and ports of RDMA devices (mlx5_0/1) that must be up."},
    {"link_gbps", &ExpectConfig::link_gbps, "Minimum rate of each of these links in Gbit/s; -1: do not check.",
     Unit::none, -1, 1e5},
    {"mtu", &ExpectConfig::mtu,
     "Minimum MTU of network interfaces that are up; -1: compare interfaces of the same speed with each other.",
     Unit::none, -1, 65'536},
    {"hcas", &ExpectConfig::hcas, "Number of RDMA adapters; -1: do not check.", Unit::none, -1, 256},
    {"nvmes", &ExpectConfig::nvmes, "Number of NVMe disks; -1: do not check.", Unit::none, -1, 256},
    {"dimms", &ExpectConfig::dimms, "Number of DIMMs; -1: do not check.", Unit::none, -1, 1024},
    {"modules", &ExpectConfig::modules, "Kernel modules that must be loaded or built in (nvidia_peermem)."},
    {"processes", &ExpectConfig::processes, "Process names of services that must run (slurmd, chronyd)."},
    {"strays", &ExpectConfig::strays,
     "Names of processes that users may run outside jobs, ignored by host.strays (sshd, tmux)."},
    {"kernel_lines", &ExpectConfig::kernel_lines,
     "Shell patterns of known kernel error lines. host.kmsg warns of all others. Empty: do not check."},
    {"kernel", &ExpectConfig::kernel, "Kernel release, as printed by uname -r. Empty: do not check."},
    {"bios", &ExpectConfig::bios, "BIOS version, as reported by DMI. Empty: do not check."},
};

constexpr Field<LimitsConfig> kLimitsFields[] = {
    {"memory_missing_percent", &LimitsConfig::memory_missing_percent,
     "Tolerated shortfall of memory, since firmware and kernel reserve some.", Unit::none, 0, 100},
    {"ecc_correctable", &LimitsConfig::ecc_correctable,
     "Warn if a GPU has more corrected memory errors than this since its driver was loaded.", Unit::none, 0, 1e15},
    {"link_flaps_per_day", &LimitsConfig::link_flaps_per_day, "Warn if a link goes down more often than this in a day.",
     Unit::none, 0, 1e6},
    {"link_errors_per_hour", &LimitsConfig::link_errors_per_hour,
     "Warn if a link counts more errors than this in an hour.", Unit::none, 0, 1e12},
    {"clock_error", &LimitsConfig::clock_error_s, "Maximum error of the node's clock.", Unit::seconds, 0, 86'400},
    {"mount_deadline", &LimitsConfig::mount_deadline_s,
     "Treat a mount that does not respond for this long as hung. Must be at least 250ms less than prolog.deadline.",
     Unit::seconds, 0.1, 8},
    {"space_free_percent", &LimitsConfig::space_free_percent,
     "Warn if a local file system has less free space than this.", Unit::none, 0, 100},
    {"memory_free_percent", &LimitsConfig::memory_free_percent,
     "Warn if less than this share of the memory is available before a job starts.", Unit::none, 0, 100},
};

constexpr Field<ActiveConfig> kActiveFields[] = {
    {"memory_gbps", &ActiveConfig::memory_gbps,
     "Memory bandwidth of a node in GB/s (10^9 bytes), measured by perf.memory; -1: do not judge it.", Unit::none, -1,
     1e9},
    {"gemm_gflops_fp32", &ActiveConfig::gemm_gflops_fp32,
     "The fp32 GEMM rate of a node in GFLOP/s; -1: do not judge it.", Unit::none, -1, 1e12},
    {"gemm_gflops_bf16", &ActiveConfig::gemm_gflops_bf16,
     "The bf16 GEMM rate of a node in GFLOP/s; -1: do not judge it.", Unit::none, -1, 1e12},
    {"nic_gbps", &ActiveConfig::nic_gbps,
     "TCP rate of perf.nic over a network interface in Gbit/s; -1: do not judge it.", Unit::none, -1, 1e6},
    {"a2a_gbps", &ActiveConfig::a2a_gbps,
     "Total all-to-all rate of perf.a2a inside a node in GB/s (10^9 bytes); -1: do not judge it.", Unit::none, -1, 1e9},
    {"procs_gbps", &ActiveConfig::procs_gbps,
     "Total rate of perf.procs over all processes in GB/s; -1: do not judge it.", Unit::none, -1, 1e9},
    {"reduce_gbps", &ActiveConfig::reduce_gbps,
     "Bus bandwidth of perf.reduce between nodes in GB/s (10^9 bytes); -1: do not judge it.", Unit::none, -1, 1e9},
    {"rdma_gbps", &ActiveConfig::rdma_gbps,
     "Rate of each RDMA adapter in perf.rdma and perf.rnics in Gbit/s; -1: use the built-in value for the adapter; "
     "without one it is not judged.",
     Unit::none, -1, 1e6},
    {"gpu_gemm_tflops_fp32", &ActiveConfig::gpu_gemm_tflops_fp32,
     "The fp32 GEMM rate of each GPU in TFLOP/s; -1: use the built-in value for the model; without one it is not "
     "judged.",
     Unit::none, -1, 1e9},
    {"gpu_gemm_tflops_bf16", &ActiveConfig::gpu_gemm_tflops_bf16,
     "The bf16 GEMM rate of each GPU in TFLOP/s; -1: use the built-in value for the model; without one it is not "
     "judged.",
     Unit::none, -1, 1e9},
    {"gpu_memory_gbps", &ActiveConfig::gpu_memory_gbps,
     "Memory bandwidth of each GPU in GB/s (10^9 bytes); -1: use the built-in value for the model; without one it is "
     "not judged.",
     Unit::none, -1, 1e9},
    {"gpu_h2d_gbps", &ActiveConfig::gpu_h2d_gbps,
     "Copy rate from pinned host memory to each GPU in GB/s; -1: use the built-in value for the model; without one it "
     "is not judged.",
     Unit::none, -1, 1e9},
    {"gpu_d2h_gbps", &ActiveConfig::gpu_d2h_gbps,
     "Copy rate from each GPU to pinned host memory in GB/s; -1: use the built-in value for the model; without one it "
     "is not judged.",
     Unit::none, -1, 1e9},
    {"gpu_peer_gbps", &ActiveConfig::gpu_peer_gbps,
     "Copy rate between GPUs of the node in GB/s; -1: use the built-in value for the model; without one it is not "
     "judged.",
     Unit::none, -1, 1e9},
    {"gpu_a2a_gbps", &ActiveConfig::gpu_a2a_gbps,
     "Rate of each GPU with its peers in perf.nccl, per direction, in GB/s; -1: only compare GPUs with each other.",
     Unit::none, -1, 1e9},
    {"gpu_net_gbps", &ActiveConfig::gpu_net_gbps,
     "Rate of each GPU with its peers in perf.ncclnet, per direction, in GB/s; -1: only compare GPUs with each other.",
     Unit::none, -1, 1e9},
    {"disk_write_gbps", &ActiveConfig::disk_write_gbps, "Write rate of perf.disk in GB/s; -1: do not judge it.",
     Unit::none, -1, 1e9},
    {"disk_read_gbps", &ActiveConfig::disk_read_gbps, "Read rate of perf.disk in GB/s; -1: do not judge it.",
     Unit::none, -1, 1e9},
    {"disk_fsyncs", &ActiveConfig::disk_fsyncs,
     "Writes of 4 KiB with fdatasync per second in perf.disk; -1: do not judge it.", Unit::none, -1, 1e9},
    {"min_fraction", &ActiveConfig::min_fraction,
     "Fraction of these numbers that a healthy node reaches. A lower rate is a warning; a rate below half of the "
     "number is critical, except in checks that only warn.",
     Unit::none, 0.5, 1},
};

constexpr Field<TelemetryConfig> kTelemetryFields[] = {
    {"directory", &TelemetryConfig::directory,
     "Directory for the samples of ms-diag collect, on storage that all nodes share. It must belong to root and be "
     "writable only by root. Empty: do not record samples."},
    {"days", &TelemetryConfig::days, "Number of days for which a node's samples are kept.", Unit::none, 1, 36'500},
    {"day_size", &TelemetryConfig::day_size_bytes,
     "Maximum size of a node's samples of one day. Later samples of that day are dropped.", Unit::bytes, 64 << 10,
     64 << 20},
};

}  // namespace

void bind(ConfigSchema& schema, Policy& policy) {
  schema.section("act", "Actions after critical findings.", policy.act, kActFields);
  schema.section("prolog", "Checks at the start of jobs and after failed jobs.", policy.prolog, kPrologFields);
  schema.section("paths", "Directories, files and programs.", policy.paths, kPathsFields);
  schema.section("expect", "Hardware and software of a healthy node of this site.", policy.expect, kExpectFields);
  schema.section("limits", "Limits of healthy values.", policy.limits, kLimitsFields);
  schema.section("active", "Rates of a healthy node under load.", policy.active, kActiveFields);
  schema.section("telemetry", "Recording of counters and sensors.", policy.telemetry, kTelemetryFields);
  bind_repair(schema, policy.repair);
}

std::int64_t share_of(double percent, std::int64_t num_nodes) {
  return std::max(std::int64_t{1}, static_cast<std::int64_t>(percent / 100 * static_cast<double>(num_nodes) + 1e-9));
}

std::int64_t drain_cap(const ActConfig& act, std::int64_t num_nodes) {
  return std::min(share_of(act.max_drained_percent, num_nodes), act.max_drained);
}

}  // namespace ms::health
