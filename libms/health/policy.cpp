#include "health/policy.h"

#include <algorithm>
#include <cmath>

namespace ms::health {
namespace {

constexpr Field<ActConfig> kActFields[] = {
    {.key = "mode",
     .member = &ActConfig::mode,
     .doc = "With observe, what would be done is only logged; with act, a node with a critical finding is drained and "
            "the job starts elsewhere.",
     .choices = {"observe", "act"}},
    {.key = "allow",
     .member = &ActConfig::allow,
     .doc = "Codes of the checks whose critical findings may drain the node, the most telling first; what a job's user "
            "can cause is refused here. At a job's start a finding of one GPU drains only if the GPU is the job's: it "
            "is matched by the number that Slurm gives (SLURM_JOB_GPUS), which is NVML's only where gres.conf lists "
            "the devices in order."},
    {.key = "allow_off",
     .member = &ActConfig::allow_off,
     .doc = "Whether a job may say --ms-preflight=off; otherwise that word is ignored."},
    {.key = "kill_switch",
     .member = &ActConfig::kill_switch,
     .doc = "While this file exists nothing is checked and nothing is done at the start and the end of jobs."},
    {.key = "max_drained_percent",
     .member = &ActConfig::max_drained_percent,
     .doc = "The part of the cluster's nodes that may be drained by ms-diag at once, rounded down but at least one "
            "node.",
     .min = 0,
     .max = 100},
    {.key = "max_drained",
     .member = &ActConfig::max_drained,
     .doc = "The number of nodes that may be drained by ms-diag at once, whatever the size of the cluster.",
     .min = 0,
     .max = 100'000},
};

constexpr Field<PrologConfig> kPrologFields[] = {
    {.key = "deadline",
     .member = &PrologConfig::deadline_s,
     .doc = "How long all checks of one prolog may take together; what is not done by then is cut.",
     .unit = Unit::seconds,
     .min = 0.5,
     .max = 8},
    {.key = "epilog_interval",
     .member = &PrologConfig::epilog_interval_s,
     .doc = "After a job that failed, was cancelled or requeued the checks run again, on one node at most this often.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 7 * 86'400},
};

constexpr Field<PathsConfig> kPathsFields[] = {
    {.key = "state",
     .member = &PathsConfig::state,
     .doc = "The local directory, root's alone, in which a node remembers counters, drains and its history."},
    {.key = "site",
     .member = &PathsConfig::site,
     .doc = "A directory of root's alone (0700) on storage that all nodes share, in which the drains of all are kept "
            "for ms-diag history --site; empty: each node knows its own only."},
    {.key = "spool",
     .member = &PathsConfig::spool,
     .doc = "The local directory into which events are written for ms-diag notify."},
    {.key = "notes",
     .member = &PathsConfig::notes,
     .doc = "The local directory of the notes that are shown to restarted jobs."},
    {.key = "scontrol", .member = &PathsConfig::scontrol, .doc = "Slurm's command, through which Slurm is asked."},
    {.key = "slurm_conf",
     .member = &PathsConfig::slurm_conf,
     .doc = "The slurm.conf that scontrol is to read; empty for Slurm's own default."},
    {.key = "gres_conf",
     .member = &PathsConfig::gres_conf,
     .doc = "Slurm's gres.conf, which says how many GPUs this node should have."},
    {.key = "nvml",
     .member = &PathsConfig::nvml,
     .doc = "NVIDIA's management library, which is opened if it is there; empty for the first libnvidia-ml.so.1 of "
            "/usr/lib/x86_64-linux-gnu, /usr/lib/aarch64-linux-gnu and /usr/lib64."},
    {.key = "sysroot",
     .member = &PathsConfig::sysroot,
     .doc = "Where the files of the node that checks read lie; anything but / is for tests."},
};

constexpr Field<ExpectConfig> kExpectFields[] = {
    {.key = "gpus",
     .member = &ExpectConfig::gpus,
     .doc = "GPUs of a node; -1 to take the number from gres.conf, else from the PCI bus.",
     .min = -1,
     .max = 1024},
    {.key = "nvlinks_per_gpu",
     .member = &ExpectConfig::nvlinks_per_gpu,
     .doc = "NVLinks of each GPU that must be up; -1 for as many as the GPU says it has.",
     .min = -1,
     .max = 1024},
    {.key = "cpus",
     .member = &ExpectConfig::cpus,
     .doc = "Processors that must be online; -1 for as many as are present.",
     .min = -1,
     .max = 65'536},
    {.key = "memory_mib",
     .member = &ExpectConfig::memory_mib,
     .doc = "Memory of a node in MiB as MemTotal of /proc/meminfo shows it when all is well; -1 if it is not to be "
            "compared.",
     .min = -1,
     .max = 1e12},
    {.key = "mounts",
     .member = &ExpectConfig::mounts,
     .doc = "Mount points that must be mounted and must answer, as absolute paths; :rw behind one says that it must be "
            "writable, :ro that it may be read-only."},
    {.key = "links",
     .member = &ExpectConfig::links,
     .doc = "Network interfaces (eth0) and ports of RDMA devices (mlx5_0/1) that must be up."},
    {.key = "link_gbps",
     .member = &ExpectConfig::link_gbps,
     .doc = "The least rate of each of these links in Gbit/s; -1 if it is not to be compared.",
     .min = -1,
     .max = 1e5},
    {.key = "mtu",
     .member = &ExpectConfig::mtu,
     .doc = "The least MTU of network interfaces that are up; -1: those of the same speed are compared.",
     .min = -1,
     .max = 65'536},
    {.key = "hcas",
     .member = &ExpectConfig::hcas,
     .doc = "RDMA adapters of a node; -1 if they are not to be counted.",
     .min = -1,
     .max = 256},
    {.key = "nvmes",
     .member = &ExpectConfig::nvmes,
     .doc = "NVMe disks of a node; -1 if they are not to be counted.",
     .min = -1,
     .max = 256},
    {.key = "dimms",
     .member = &ExpectConfig::dimms,
     .doc = "DIMMs of a node; -1 if they are not to be counted.",
     .min = -1,
     .max = 1024},
    {.key = "modules",
     .member = &ExpectConfig::modules,
     .doc = "Kernel modules that must be loaded or built in (nvidia_peermem)."},
    {.key = "processes",
     .member = &ExpectConfig::processes,
     .doc = "Services that must run, by the names of their processes (slurmd, chronyd)."},
    {.key = "kernel",
     .member = &ExpectConfig::kernel,
     .doc = "The kernel's release as uname -r tells it; empty if it is not to be compared."},
    {.key = "bios",
     .member = &ExpectConfig::bios,
     .doc = "The BIOS's version as DMI tells it; empty if it is not to be compared."},
};

constexpr Field<LimitsConfig> kLimitsFields[] = {
    {.key = "memory_missing_percent",
     .member = &LimitsConfig::memory_missing_percent,
     .doc = "Memory below what is expected that is still fine, because firmware and kernel take some.",
     .min = 0,
     .max = 100},
    {.key = "ecc_correctable",
     .member = &LimitsConfig::ecc_correctable,
     .doc = "Corrected memory errors of one GPU since its driver was loaded, above which is a warning.",
     .min = 0,
     .max = 1e15},
    {.key = "link_flaps_per_day",
     .member = &LimitsConfig::link_flaps_per_day,
     .doc = "How often a link may go down in a day before that is a warning.",
     .min = 0,
     .max = 1e6},
    {.key = "link_errors_per_hour",
     .member = &LimitsConfig::link_errors_per_hour,
     .doc = "Errors that a link may count in an hour before that is a warning.",
     .min = 0,
     .max = 1e12},
    {.key = "clock_error",
     .member = &LimitsConfig::clock_error_s,
     .doc = "How far the node's clock may be off.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 86'400},
    {.key = "mount_deadline",
     .member = &LimitsConfig::mount_deadline_s,
     .doc = "How long a mount may take to answer before it hangs; at least 250ms less than prolog.deadline.",
     .unit = Unit::seconds,
     .min = 0.1,
     .max = 8},
    {.key = "space_free_percent",
     .member = &LimitsConfig::space_free_percent,
     .doc = "Free space of local file systems below which is a warning.",
     .min = 0,
     .max = 100},
};

constexpr Field<ActiveConfig> kActiveFields[] = {
    {.key = "memory_gbps",
     .member = &ActiveConfig::memory_gbps,
     .doc =
         "Memory bandwidth of a node in GB/s (10^9 bytes), as perf.memory measures it; -1 if it is not to be judged.",
     .min = -1,
     .max = 1e9},
    {.key = "gemm_gflops_fp32",
     .member = &ActiveConfig::gemm_gflops_fp32,
     .doc = "Rate of fp32 GEMMs of a node in GFLOP/s; -1 if it is not to be judged.",
     .min = -1,
     .max = 1e12},
    {.key = "gemm_gflops_bf16",
     .member = &ActiveConfig::gemm_gflops_bf16,
     .doc = "Rate of bf16 GEMMs of a node in GFLOP/s; -1 if it is not to be judged.",
     .min = -1,
     .max = 1e12},
    {.key = "nic_gbps",
     .member = &ActiveConfig::nic_gbps,
     .doc = "What perf.nic measures with the address of a network interface, in Gbit/s; -1 if it is not to be judged.",
     .min = -1,
     .max = 1e6},
    {.key = "a2a_gbps",
     .member = &ActiveConfig::a2a_gbps,
     .doc =
         "What all ranks of perf.a2a send together inside a node, in GB/s (10^9 bytes); -1 if it is not to be judged.",
     .min = -1,
     .max = 1e9},
    {.key = "reduce_gbps",
     .member = &ActiveConfig::reduce_gbps,
     .doc = "The bus bandwidth of perf.reduce between nodes, in GB/s (10^9 bytes); -1 if it is not to be judged.",
     .min = -1,
     .max = 1e9},
    {.key = "min_fraction",
     .member = &ActiveConfig::min_fraction,
     .doc = "The part of these numbers that is still healthy; less is a warning, less than half is critical.",
     .min = 0.5,
     .max = 1},
};

constexpr Field<TelemetryConfig> kTelemetryFields[] = {
    {.key = "directory",
     .member = &TelemetryConfig::directory,
     .doc = "A directory of root's on storage that all nodes share, which nobody else may write, in which ms-diag "
            "collect keeps the samples of each node; empty: none are kept."},
    {.key = "days",
     .member = &TelemetryConfig::days,
     .doc = "How many days of a node's samples are kept.",
     .min = 1,
     .max = 36'500},
    {.key = "day_size",
     .member = &TelemetryConfig::day_size_bytes,
     .doc = "How large the samples of a node and a day may grow; what comes after is not kept.",
     .unit = Unit::bytes,
     .min = 64 << 10,
     .max = 64 << 20},
};

}  // namespace

void bind(ConfigSchema& schema, Policy& policy) {
  schema.section("act", "What a critical finding leads to.", policy.act, kActFields);
  schema.section("prolog", "The checks at the start of jobs and after failed ones.", policy.prolog, kPrologFields);
  schema.section("paths", "Where things are.", policy.paths, kPathsFields);
  schema.section("expect", "What a healthy node of this site has.", policy.expect, kExpectFields);
  schema.section("limits", "What is still healthy.", policy.limits, kLimitsFields);
  schema.section("active", "What a node of this site reaches when it is loaded.", policy.active, kActiveFields);
  schema.section("telemetry", "What is kept of a node's counters and sensors.", policy.telemetry, kTelemetryFields);
}

std::int64_t drain_cap(const ActConfig& act, std::int64_t num_nodes) {
  const double part = std::floor(act.max_drained_percent / 100 * static_cast<double>(num_nodes) + 1e-9);
  return std::min(std::max<std::int64_t>(1, static_cast<std::int64_t>(part)), act.max_drained);
}

}  // namespace ms::health
