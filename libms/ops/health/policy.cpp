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
    {.key = "allow",
     .member = &ActConfig::allow,
     .doc = "Codes of checks whose critical findings may drain the node. The drain reason begins with the finding "
            "whose code is first in this list, so list the most specific codes first. Checks that a user's job can "
            "cause to fail are rejected here. At the start of a job, a finding on one GPU drains only if the GPU "
            "belongs to the job. GPUs are matched by SLURM_JOB_GPUS, which equals NVML's numbering only if gres.conf "
            "lists the devices in order."},
    {.key = "allow_off",
     .member = &ActConfig::allow_off,
     .doc = "Allow jobs to use --ms-preflight=off. Otherwise the option is ignored."},
    {.key = "kill_switch",
     .member = &ActConfig::kill_switch,
     .doc = "While this file exists, nothing is checked or done at the start and end of jobs."},
    {.key = "max_drained_percent",
     .member = &ActConfig::max_drained_percent,
     .doc = "Maximum percentage of the cluster's nodes that ms-diag may have drained at a time, rounded down but at "
            "least one node.",
     .min = 0,
     .max = 100},
    {.key = "max_drained",
     .member = &ActConfig::max_drained,
     .doc = "Maximum number of nodes that ms-diag may have drained at a time, regardless of the cluster size.",
     .min = 0,
     .max = 100'000},
};

constexpr Field<PrologConfig> kPrologFields[] = {
    {.key = "deadline",
     .member = &PrologConfig::deadline_s,
     .doc = "Time limit for all checks of one prolog together. Unfinished checks are aborted.",
     .unit = Unit::seconds,
     .min = 0.5,
     .max = 8},
    {.key = "epilog_interval",
     .member = &PrologConfig::epilog_interval_s,
     .doc = "Minimum time on a node between check runs after jobs that failed, were cancelled or requeued.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 7 * 86'400},
};

constexpr Field<PathsConfig> kPathsFields[] = {
    {.key = "state",
     .member = &PathsConfig::state,
     .doc = "Local directory, accessible only to root, for a node's counters, drains and history."},
    {.key = "site",
     .member = &PathsConfig::site,
     .doc = "Directory accessible only to root (0700) on storage that all nodes share. It holds the drains of all "
            "nodes for ms-diag history --site. Empty: each node records only its own."},
    {.key = "spool", .member = &PathsConfig::spool, .doc = "Local directory for events to be sent by ms-diag notify."},
    {.key = "notes", .member = &PathsConfig::notes, .doc = "Local directory for the notes shown to restarted jobs."},
    {.key = "scontrol", .member = &PathsConfig::scontrol, .doc = "Path of Slurm's scontrol command."},
    {.key = "slurm_conf",
     .member = &PathsConfig::slurm_conf,
     .doc = "The slurm.conf for scontrol. Empty: Slurm's default."},
    {.key = "gres_conf",
     .member = &PathsConfig::gres_conf,
     .doc = "Slurm's gres.conf, which defines the number of GPUs of this node."},
    {.key = "checks",
     .member = &PathsConfig::checks,
     .doc = "Directory of the site's own checks, see SITE CHECKS in ms-diag(1). It and all files in it must belong to "
            "root and be writable only by root. Empty: none."},
    {.key = "nvml",
     .member = &PathsConfig::nvml,
     .doc = "NVIDIA's management library (NVML), loaded if it exists. Empty: the first libnvidia-ml.so.1 in "
            "/usr/lib/x86_64-linux-gnu, /usr/lib/aarch64-linux-gnu, /usr/lib64 and /usr/local/nvidia/lib64."},
    {.key = "perftest",
     .member = &PathsConfig::perftest,
     .doc = "Path of ib_write_bw from perftest, used by perf.rdma and perf.rnics."},
    {.key = "smartctl",
     .member = &PathsConfig::smartctl,
     .doc = "Path of smartctl from smartmontools, used by disk.smart."},
    {.key = "ipmitool", .member = &PathsConfig::ipmitool, .doc = "Path of ipmitool, used by host.bmc."},
    {.key = "dcgmi", .member = &PathsConfig::dcgmi, .doc = "Path of dcgmi from NVIDIA DCGM, used by gpu.dcgm."},
    {.key = "nvidia_smi",
     .member = &PathsConfig::nvidia_smi,
     .doc = "Path of nvidia-smi, or of a program called like it, used by ms-diag repair to reset GPUs."},
    {.key = "sysroot",
     .member = &PathsConfig::sysroot,
     .doc = "Root of the file tree that checks read. Values other than / are for tests."},
};

constexpr Field<ExpectConfig> kExpectFields[] = {
    {.key = "gpus",
     .member = &ExpectConfig::gpus,
     .doc = "Number of GPUs; -1: as in gres.conf, else as on the PCI bus.",
     .min = -1,
     .max = 1024},
    {.key = "nvlinks_per_gpu",
     .member = &ExpectConfig::nvlinks_per_gpu,
     .doc = "Number of NVLinks per GPU that must be up; -1: as many as the GPU reports.",
     .min = -1,
     .max = 1024},
    {.key = "cpus",
     .member = &ExpectConfig::cpus,
     .doc = "Number of CPUs that must be online; -1: all that are present.",
     .min = -1,
     .max = 65'536},
    {.key = "memory_mib",
     .member = &ExpectConfig::memory_mib,
     .doc = "Memory of a healthy node in MiB, as MemTotal in /proc/meminfo; -1: do not check.",
     .min = -1,
     .max = 1e12},
    {.key = "mounts",
     .member = &ExpectConfig::mounts,
     .doc = "Mount points that must be mounted and responsive, as absolute paths. Append :rw if the mount must be "
            "writable, :ro if it may be read-only."},
    {.key = "links",
     .member = &ExpectConfig::links,
     .doc = "Network interfaces (eth0) and ports of RDMA devices (mlx5_0/1) that must be up."},
    {.key = "link_gbps",
     .member = &ExpectConfig::link_gbps,
     .doc = "Minimum rate of each of these links in Gbit/s; -1: do not check.",
     .min = -1,
     .max = 1e5},
    {.key = "mtu",
     .member = &ExpectConfig::mtu,
     .doc = "Minimum MTU of network interfaces that are up; -1: compare interfaces of the same speed with each other.",
     .min = -1,
     .max = 65'536},
    {.key = "hcas",
     .member = &ExpectConfig::hcas,
     .doc = "Number of RDMA adapters; -1: do not check.",
     .min = -1,
     .max = 256},
    {.key = "nvmes",
     .member = &ExpectConfig::nvmes,
     .doc = "Number of NVMe disks; -1: do not check.",
     .min = -1,
     .max = 256},
    {.key = "dimms",
     .member = &ExpectConfig::dimms,
     .doc = "Number of DIMMs; -1: do not check.",
     .min = -1,
     .max = 1024},
    {.key = "modules",
     .member = &ExpectConfig::modules,
     .doc = "Kernel modules that must be loaded or built in (nvidia_peermem)."},
    {.key = "processes",
     .member = &ExpectConfig::processes,
     .doc = "Process names of services that must run (slurmd, chronyd)."},
    {.key = "strays",
     .member = &ExpectConfig::strays,
     .doc = "Names of processes that users may run outside jobs, ignored by host.strays (sshd, tmux)."},
    {.key = "kernel_lines",
     .member = &ExpectConfig::kernel_lines,
     .doc = "Shell patterns of known kernel error lines. host.kmsg warns of all others. Empty: do not check."},
    {.key = "kernel",
     .member = &ExpectConfig::kernel,
     .doc = "Kernel release, as printed by uname -r. Empty: do not check."},
    {.key = "bios", .member = &ExpectConfig::bios, .doc = "BIOS version, as reported by DMI. Empty: do not check."},
};

constexpr Field<LimitsConfig> kLimitsFields[] = {
    {.key = "memory_missing_percent",
     .member = &LimitsConfig::memory_missing_percent,
     .doc = "Tolerated shortfall of memory, since firmware and kernel reserve some.",
     .min = 0,
     .max = 100},
    {.key = "ecc_correctable",
     .member = &LimitsConfig::ecc_correctable,
     .doc = "Warn if a GPU has more corrected memory errors than this since its driver was loaded.",
     .min = 0,
     .max = 1e15},
    {.key = "link_flaps_per_day",
     .member = &LimitsConfig::link_flaps_per_day,
     .doc = "Warn if a link goes down more often than this in a day.",
     .min = 0,
     .max = 1e6},
    {.key = "link_errors_per_hour",
     .member = &LimitsConfig::link_errors_per_hour,
     .doc = "Warn if a link counts more errors than this in an hour.",
     .min = 0,
     .max = 1e12},
    {.key = "clock_error",
     .member = &LimitsConfig::clock_error_s,
     .doc = "Maximum error of the node's clock.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 86'400},
    {.key = "mount_deadline",
     .member = &LimitsConfig::mount_deadline_s,
     .doc =
         "Treat a mount that does not respond for this long as hung. Must be at least 250ms less than prolog.deadline.",
     .unit = Unit::seconds,
     .min = 0.1,
     .max = 8},
    {.key = "space_free_percent",
     .member = &LimitsConfig::space_free_percent,
     .doc = "Warn if a local file system has less free space than this.",
     .min = 0,
     .max = 100},
    {.key = "memory_free_percent",
     .member = &LimitsConfig::memory_free_percent,
     .doc = "Warn if less than this share of the memory is available before a job starts.",
     .min = 0,
     .max = 100},
};

constexpr Field<ActiveConfig> kActiveFields[] = {
    {.key = "memory_gbps",
     .member = &ActiveConfig::memory_gbps,
     .doc = "Memory bandwidth of a node in GB/s (10^9 bytes), measured by perf.memory; -1: do not judge it.",
     .min = -1,
     .max = 1e9},
    {.key = "gemm_gflops_fp32",
     .member = &ActiveConfig::gemm_gflops_fp32,
     .doc = "The fp32 GEMM rate of a node in GFLOP/s; -1: do not judge it.",
     .min = -1,
     .max = 1e12},
    {.key = "gemm_gflops_bf16",
     .member = &ActiveConfig::gemm_gflops_bf16,
     .doc = "The bf16 GEMM rate of a node in GFLOP/s; -1: do not judge it.",
     .min = -1,
     .max = 1e12},
    {.key = "nic_gbps",
     .member = &ActiveConfig::nic_gbps,
     .doc = "TCP rate of perf.nic over a network interface in Gbit/s; -1: do not judge it.",
     .min = -1,
     .max = 1e6},
    {.key = "a2a_gbps",
     .member = &ActiveConfig::a2a_gbps,
     .doc = "Total all-to-all rate of perf.a2a inside a node in GB/s (10^9 bytes); -1: do not judge it.",
     .min = -1,
     .max = 1e9},
    {.key = "procs_gbps",
     .member = &ActiveConfig::procs_gbps,
     .doc = "Total rate of perf.procs over all processes in GB/s; -1: do not judge it.",
     .min = -1,
     .max = 1e9},
    {.key = "reduce_gbps",
     .member = &ActiveConfig::reduce_gbps,
     .doc = "Bus bandwidth of perf.reduce between nodes in GB/s (10^9 bytes); -1: do not judge it.",
     .min = -1,
     .max = 1e9},
    {.key = "rdma_gbps",
     .member = &ActiveConfig::rdma_gbps,
     .doc = "Rate of each RDMA adapter in perf.rdma and perf.rnics in Gbit/s; -1: use the built-in value for the "
            "adapter; without one it is not judged.",
     .min = -1,
     .max = 1e6},
    {.key = "gpu_gemm_tflops_fp32",
     .member = &ActiveConfig::gpu_gemm_tflops_fp32,
     .doc =
         "The fp32 GEMM rate of each GPU in TFLOP/s; -1: use the built-in value for the model; without one it is not "
         "judged.",
     .min = -1,
     .max = 1e9},
    {.key = "gpu_gemm_tflops_bf16",
     .member = &ActiveConfig::gpu_gemm_tflops_bf16,
     .doc =
         "The bf16 GEMM rate of each GPU in TFLOP/s; -1: use the built-in value for the model; without one it is not "
         "judged.",
     .min = -1,
     .max = 1e9},
    {.key = "gpu_memory_gbps",
     .member = &ActiveConfig::gpu_memory_gbps,
     .doc = "Memory bandwidth of each GPU in GB/s (10^9 bytes); -1: use the built-in value for the model; without one "
            "it is not judged.",
     .min = -1,
     .max = 1e9},
    {.key = "gpu_h2d_gbps",
     .member = &ActiveConfig::gpu_h2d_gbps,
     .doc = "Copy rate from pinned host memory to each GPU in GB/s; -1: use the built-in value for the model; without "
            "one it is not judged.",
     .min = -1,
     .max = 1e9},
    {.key = "gpu_d2h_gbps",
     .member = &ActiveConfig::gpu_d2h_gbps,
     .doc = "Copy rate from each GPU to pinned host memory in GB/s; -1: use the built-in value for the model; without "
            "one it is not judged.",
     .min = -1,
     .max = 1e9},
    {.key = "gpu_peer_gbps",
     .member = &ActiveConfig::gpu_peer_gbps,
     .doc = "Copy rate between GPUs of the node in GB/s; -1: use the built-in value for the model; without one it is "
            "not judged.",
     .min = -1,
     .max = 1e9},
    {.key = "gpu_a2a_gbps",
     .member = &ActiveConfig::gpu_a2a_gbps,
     .doc =
         "Rate of each GPU with its peers in perf.nccl, per direction, in GB/s; -1: only compare GPUs with each other.",
     .min = -1,
     .max = 1e9},
    {.key = "gpu_net_gbps",
     .member = &ActiveConfig::gpu_net_gbps,
     .doc = "Rate of each GPU with its peers in perf.ncclnet, per direction, in GB/s; -1: only compare GPUs with each "
            "other.",
     .min = -1,
     .max = 1e9},
    {.key = "disk_write_gbps",
     .member = &ActiveConfig::disk_write_gbps,
     .doc = "Write rate of perf.disk in GB/s; -1: do not judge it.",
     .min = -1,
     .max = 1e9},
    {.key = "disk_read_gbps",
     .member = &ActiveConfig::disk_read_gbps,
     .doc = "Read rate of perf.disk in GB/s; -1: do not judge it.",
     .min = -1,
     .max = 1e9},
    {.key = "disk_fsyncs",
     .member = &ActiveConfig::disk_fsyncs,
     .doc = "Writes of 4 KiB with fdatasync per second in perf.disk; -1: do not judge it.",
     .min = -1,
     .max = 1e9},
    {.key = "min_fraction",
     .member = &ActiveConfig::min_fraction,
     .doc = "Fraction of these numbers that a healthy node reaches. A lower rate is a warning; a rate below half of "
            "the number is critical, except in checks that only warn.",
     .min = 0.5,
     .max = 1},
};

constexpr Field<TelemetryConfig> kTelemetryFields[] = {
    {.key = "directory",
     .member = &TelemetryConfig::directory,
     .doc = "Directory for the samples of ms-diag collect, on storage that all nodes share. It must belong to root and "
            "be writable only by root. Empty: do not record samples."},
    {.key = "days",
     .member = &TelemetryConfig::days,
     .doc = "Number of days for which a node's samples are kept.",
     .min = 1,
     .max = 36'500},
    {.key = "day_size",
     .member = &TelemetryConfig::day_size_bytes,
     .doc = "Maximum size of a node's samples of one day. Later samples of that day are dropped.",
     .unit = Unit::bytes,
     .min = 64 << 10,
     .max = 64 << 20},
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
