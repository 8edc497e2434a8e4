// The site's policy: one TOML file, owned by root (ms-diag.toml(5), made from the tables in policy.cpp). It says
// whether findings may drain nodes, which, how many, and what a healthy node of this site looks like. `sysroot` and
// `nvml` are the only seams for tests: keys of this root-owned file, never environment variables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"

namespace ms::health {

inline constexpr const char* kPolicyPath = "/etc/ms/ms-diag.toml";

struct ActConfig {
  std::string mode = "observe";  // or "act"
  // Codes that may drain: at most kMaxAllowed, and none that a user's job can cause.
  std::vector<std::string> allow = {"gpu.count",    "gpu.lost",    "gpu.ecc",  "gpu.remap",
                                    "gpu.recovery", "gpu.xid",     "host.mce", "host.memory",
                                    "disk.mounts",  "disk.errors", "disk.ro",  "net.link"};
  bool allow_off = false;  // may a job say --ms-preflight=off?
  std::string kill_switch = "/etc/ms/ms-diag.off";
  // Never more of our drains than this part of the cluster's nodes (at least one), and never more than max_drained.
  double max_drained_percent = 10;
  std::int64_t max_drained = 16;
};
inline constexpr std::size_t kMaxAllowed = 16;

struct PrologConfig {
  double deadline_s = 4;  // of all level-1 checks of one prolog; what is not done by then is cut
  // A failed job's epilog looks again at most this often: shorter than Slurm's delay of a requeue (120 s and more), so
  // that a restarted job that fails here again is looked at.
  double epilog_interval_s = 30;
};

struct PathsConfig {
  std::string state = "/var/lib/ms-diag";
  std::string spool = "/var/spool/ms-diag";
  std::string site;                    // on storage that all nodes share; empty: drains are known on each node only
  std::string notes = "/run/ms-diag";  // notes that a restarted job shows its user
  std::string scontrol = "/usr/bin/scontrol";
  std::string slurm_conf;  // SLURM_CONF for scontrol; empty: Slurm's default
  std::string gres_conf = "/etc/slurm/gres.conf";
  std::string checks;  // empty: none
  std::string nvml;    // empty: where distributions have it (gpus.h)
  std::string perftest = "/usr/bin/ib_write_bw";
  std::string smartctl = "/usr/sbin/smartctl";
  std::string ipmitool = "/usr/bin/ipmitool";
  std::string dcgmi = "/usr/bin/dcgmi";
  std::string nvidia_smi = "/usr/bin/nvidia-smi";
  std::string sysroot = "/";
};

// The equipment of a healthy node. -1 or empty: taken from the node itself if that is possible, otherwise not checked.
struct ExpectConfig {
  std::int64_t gpus = -1;
  std::int64_t nvlinks_per_gpu = -1;
  std::int64_t cpus = -1;
  std::int64_t memory_mib = -1;
  std::vector<std::string> mounts;  // must be mounted and answer; ":rw" or ":ro" behind it says how
  std::vector<std::string> links;   // network interfaces and "mlx5_0/1" ports that must be up
  double link_gbps = -1;            // least rate of each of them
  std::int64_t mtu = -1;            // least MTU of network interfaces
  std::int64_t hcas = -1;
  std::int64_t nvmes = -1;
  std::int64_t dimms = -1;
  std::vector<std::string> modules;       // of the kernel
  std::vector<std::string> processes;     // names of services
  std::vector<std::string> strays;        // names of processes that users may have outside jobs
  std::vector<std::string> kernel_lines;  // shell patterns of the kernel's error lines that are known here
  std::string kernel;                     // release
  std::string bios;                       // version
};

struct LimitsConfig {
  double memory_missing_percent = 3;
  std::int64_t ecc_correctable = 10000;  // volatile, a GPU
  std::int64_t link_flaps_per_day = 5;
  double link_errors_per_hour = 100;
  double clock_error_s = 1;
  double mount_deadline_s = 2;
  double space_free_percent = 5;
  double memory_free_percent = 5;
};

// The performance of a node of this site in the active checks (levels 2 and 3), all of its cores together. -1: what is
// known of the model (diag/limits.toml), else measured and shown, but not judged.
struct ActiveConfig {
  double memory_gbps = -1;
  double gemm_gflops_fp32 = -1;
  double gemm_gflops_bf16 = -1;
  double nic_gbps = -1;
  double a2a_gbps = -1;
  double procs_gbps = -1;
  double reduce_gbps = -1;
  double rdma_gbps = -1;             // each adapter
  double gpu_gemm_tflops_fp32 = -1;  // each GPU
  double gpu_gemm_tflops_bf16 = -1;
  double gpu_memory_gbps = -1;
  double gpu_h2d_gbps = -1;
  double gpu_d2h_gbps = -1;
  double gpu_peer_gbps = -1;  // each pair
  double gpu_a2a_gbps = -1;   // each GPU, each way
  double gpu_net_gbps = -1;   // likewise, over the network cards
  double disk_write_gbps = -1;
  double disk_read_gbps = -1;
  double disk_fsyncs = -1;     // a second
  double min_fraction = 0.75;  // of these; less is a warning, less than half is critical
};

// The samples of this node's counters and sensors that ms-diag collect keeps.
struct TelemetryConfig {
  std::string directory;  // on storage that all nodes share; empty: nothing is kept
  std::int64_t days = 120;
  std::int64_t day_size_bytes = 4 << 20;  // of a node
};

// The limits of ms-diag repair, on the head node.
struct RepairConfig {
  std::string state = "/var/lib/ms-repair";
  std::vector<std::string> remedies = {"kill-leftovers", "remount",       "restart-slurmd", "restart-fabric",
                                       "gpu-reset",      "driver-reload", "reboot"};
  std::string checks = "*";
  std::int64_t level = 3;
  double soak_s = 600;
  std::string golden;
  double max_nodes_percent = 5;
  std::int64_t attempts_per_week = 5;
  double cool_down_s = 86'400;
  double patience_s = 1800;
  double interval_s = 60;
};

struct Policy {
  ActConfig act;
  PrologConfig prolog;
  PathsConfig paths;
  ExpectConfig expect;
  LimitsConfig limits;
  ActiveConfig active;
  TelemetryConfig telemetry;
  RepairConfig repair;
  std::string file;  // where it was read, empty: defaults

  bool may_act() const { return act.mode == "act"; }
};

void bind(ConfigSchema& schema, Policy& policy);
void bind_repair(ConfigSchema& schema, RepairConfig& config);

// So many of the nodes, rounded down, but at least one.
std::int64_t share_of(double percent, std::int64_t num_nodes);
// How many nodes of a cluster of this size may be drained by us at once.
std::int64_t drain_cap(const ActConfig& act, std::int64_t num_nodes);

}  // namespace ms::health
