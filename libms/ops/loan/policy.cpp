#include "loan/policy.h"

#include "base/file.h"
#include "base/man.h"

namespace ms::loan {
namespace {

constexpr Field<ClusterConfig> kClusterFields[] = {
    {.key = "train_nodes",
     .member = &ClusterConfig::train_nodes,
     .doc = "Number of nodes owned by training.",
     .min = 1,
     .max = 100'000},
    {.key = "inference_nodes",
     .member = &ClusterConfig::inference_nodes,
     .doc = "Number of nodes owned by inference, which may be lent.",
     .min = 0,
     .max = 100'000},
    {.key = "gpus_per_node", .member = &ClusterConfig::gpus_per_node, .doc = "GPUs per node.", .min = 1, .max = 64},
};

constexpr Field<LoanConfig> kLoanFields[] = {
    {.key = "poll",
     .member = &LoanConfig::poll_s,
     .doc = "Interval for reading the demand of inference.",
     .unit = Unit::seconds,
     .min = 0.1,
     .max = 3600},
    {.key = "grace",
     .member = &LoanConfig::grace_s,
     .doc = "Maximum time from a rise of demand to the return of the nodes. It covers one poll, the time for jobs to "
            "save after their signal, and the time for Slurm to end a job (KillWait and slurm.end). act and observe "
            "reject a value too short for these.",
     .unit = Unit::seconds,
     .min = 0.1,
     .max = 86'400},
    {.key = "lend_interval",
     .member = &LoanConfig::lend_interval_s,
     .doc = "Interval for lending idle nodes. Nodes are reclaimed at every poll.",
     .unit = Unit::seconds,
     .min = 1,
     .max = 86'400},
    {.key = "reserve_quantile",
     .member = &LoanConfig::reserve_quantile,
     .doc = "Inference keeps nodes for this quantile of its demand in the last reserve_window, and at least for its "
            "current demand.",
     .min = 0,
     .max = 1},
    {.key = "reserve_window",
     .member = &LoanConfig::reserve_window_s,
     .doc = "Time window of reserve_quantile.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 30 * 86'400.0},
    {.key = "headroom_percent",
     .member = &LoanConfig::headroom_percent,
     .doc = "Extra nodes for inference, as a percentage of its current demand, rounded up. Nodes on loan are reclaimed "
            "for them too.",
     .min = 0,
     .max = 100},
    {.key = "grow",
     .member = &LoanConfig::grow,
     .doc = "Let elastic runs take idle nodes on loan that no job waits for, every schedule.interval. This applies to "
            "runs of ms-driver run --max-nodes, which save and are requeued."},
    {.key = "shrink",
     .member = &LoanConfig::shrink,
     .doc = "Take nodes from elastic runs, down to their minimum, if a waiting job of the loan partition then fits. "
            "The job with the shortest time limit is first."},
};

constexpr Field<ScheduleConfig> kScheduleFields[] = {
    {.key = "interval",
     .member = &ScheduleConfig::interval_s,
     .doc = "Interval for reassigning the extra workers of elastic jobs.",
     .unit = Unit::seconds,
     .min = 1,
     .max = 86'400},
    {.key = "horizon",
     .member = &ScheduleConfig::horizon_s,
     .doc = "Part of a job's remaining work in which the time saved by extra workers counts. Work after that can be "
            "sped up later.",
     .unit = Unit::seconds,
     .min = 1,
     .max = 1e9},
    {.key = "settle",
     .member = &ScheduleConfig::settle_s,
     .doc = "Minimum time after the start or growth of a run before its nodes are taken for waiting jobs. Inference "
            "can reclaim nodes at any time.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 7 * 86'400.0},
    {.key = "backfill_depth",
     .member = &ScheduleConfig::backfill_depth,
     .doc = "Number of waiting jobs after the first that backfill considers.",
     .min = 1,
     .max = 100'000},
};

constexpr Field<JobsConfig> kJobsFields[] = {
    {.key = "days",
     .member = &JobsConfig::days,
     .doc = "Replay this many consecutive days, those with the most submitted jobs. 0: the whole file.",
     .min = 0,
     .max = 10'000},
    {.key = "copies",
     .member = &JobsConfig::copies,
     .doc = "Average number of submissions of each job. Copies are submitted up to an hour later.",
     .min = 0.001,
     .max = 1000},
    {.key = "gpus_times",
     .member = &JobsConfig::gpus_times,
     .doc = "Multiply the GPUs of every job by this.",
     .min = 1,
     .max = 1024},
    {.key = "elastic_percent",
     .member = &JobsConfig::elastic_percent,
     .doc = "Percentage of jobs that are elastic, those with the most GPUs first. Ignored if the file has a column "
            "max_gpus.",
     .min = 0,
     .max = 100},
    {.key = "max_times",
     .member = &JobsConfig::max_times,
     .doc = "Maximum size of such an elastic job as a multiple of its GPUs.",
     .min = 1,
     .max = 64},
    {.key = "curves",
     .member = &JobsConfig::curves,
     .doc = "Files of measured step times (columns num_replicas, local_bsz, step_time). Each elastic job follows one "
            "of them. Empty: jobs scale linearly with their GPUs."},
    {.key = "estimate_error_percent",
     .member = &JobsConfig::estimate_error_percent,
     .doc = "Maximum error of run time estimates in either direction. Ignored if the file has a column time_limit.",
     .min = 0,
     .max = 99},
    {.key = "preempt_overhead",
     .member = &JobsConfig::preempt_overhead_s,
     .doc = "Time that a preempted job loses at its next start. The default was measured on Slurm with a tiny model; "
            "add the time to load the checkpoint of a large model.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 86'400},
    {.key = "scale_overhead",
     .member = &JobsConfig::scale_overhead_s,
     .doc = "Time that an elastic job loses when its workers change. The default was measured with a tiny model that "
            "saves and grows through the queue; shrinking took 2.4 s.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 86'400},
    {.key = "seed",
     .member = &JobsConfig::seed,
     .doc = "Seed of copies, curves, errors of estimates and random victims.",
     .min = 0,
     .max = 1e15},
};

constexpr Field<DemandConfig> kDemandFields[] = {
    {.key = "file",
     .member = &DemandConfig::file,
     .doc = "File with the number of nodes that inference currently needs, for observe and act."},
    {.key = "command",
     .member = &DemandConfig::command,
     .doc = "Command with arguments that prints this number, within slurm.deadline. Use either file or command."},
    {.key = "low_percent",
     .member = &DemandConfig::low_percent,
     .doc = "Scale the demand of the replay so that its minimum is this percentage of the inference nodes. -1 for both "
            "low_percent and high_percent: do not scale.",
     .min = -1,
     .max = 100},
    {.key = "high_percent",
     .member = &DemandConfig::high_percent,
     .doc = "Scale the demand so that its maximum is this percentage.",
     .min = -1,
     .max = 100},
};

constexpr Field<SlurmConfig> kSlurmFields[] = {
    {.key = "nodes",
     .member = &SlurmConfig::nodes,
     .doc = "Hostlist of the inference nodes that may be lent. Other nodes are never changed."},
    {.key = "loan_partition",
     .member = &SlurmConfig::loan_partition,
     .doc = "Partition for jobs on loan. ms-loan sets its node list to the nodes on loan. Other partitions and their "
            "jobs are never changed."},
    {.key = "signal",
     .member = &SlurmConfig::signal,
     .doc = "Signal for the batch script of a job that will lose a node, sent as with sbatch --signal=B:. The job has "
            "loan.grace minus loan.poll, Slurm's KillWait and slurm.end to save, and is then requeued. A script "
            "without a trap for the signal ends. Empty: no signal."},
    {.key = "state",
     .member = &SlurmConfig::state,
     .doc = "Directory for the recorded demand, the decision log, and metrics.prom for Prometheus. It must belong to "
            "the user of ms-loan act. No other user may write in it or in a directory above it, except in those with "
            "the sticky bit."},
    {.key = "scontrol",
     .member = &SlurmConfig::scontrol,
     .doc = "Path of scontrol. squeue and scancel must be in the same directory."},
    {.key = "conf", .member = &SlurmConfig::conf, .doc = "The slurm.conf for these commands. Empty: Slurm's default."},
    {.key = "deadline",
     .member = &SlurmConfig::deadline_s,
     .doc = "Timeout of one Slurm command.",
     .unit = Unit::seconds,
     .min = 0.1,
     .max = 600},
    {.key = "end",
     .member = &SlurmConfig::end_s,
     .doc = "Estimated time, in addition to KillWait, until Slurm has ended a job and its nodes are idle, including "
            "the epilog.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 3600},
};

void check_rules(ConfigSchema& schema, const Policy& policy) {
  if (policy.loan.grace_s < policy.loan.poll_s) {
    schema.add_problem("loan.grace", "the grace time includes one poll of demand, so it is at least loan.poll");
  }
  const DemandConfig& demand = policy.demand;
  if (!demand.file.empty() && !demand.command.empty()) {
    schema.add_problem("demand.command", "demand comes from demand.file or from demand.command, not from both");
  }
  if ((demand.low_percent < 0) != (demand.high_percent < 0) || demand.low_percent > demand.high_percent) {
    schema.add_problem("demand.high_percent", "low_percent and high_percent come together, the lower one first");
  }
}

}  // namespace

void bind(ConfigSchema& schema, Policy& policy) {
  schema.section("cluster", "The nodes of a replay.", policy.cluster, kClusterFields);
  schema.section("loan", "Lending and reclaiming of nodes.", policy.loan, kLoanFields);
  schema.section("schedule", "Scheduling of training jobs.", policy.schedule, kScheduleFields);
  schema.section("jobs", "Jobs of a replay.", policy.jobs, kJobsFields);
  schema.section("demand", "Demand of inference: its source, and its scaling in a replay.", policy.demand,
                 kDemandFields);
  schema.section("slurm", "Slurm, for observe and act.", policy.slurm, kSlurmFields);
}

Policy load_policy(const std::string& path) {
  Policy policy;
  ConfigSchema schema;
  bind(schema, policy);
  schema.load_file(path);
  check_rules(schema, policy);
  schema.throw_if_problems();
  for (std::string& curve : policy.jobs.curves) {
    if (!curve.starts_with('/')) curve = parent_directory(path) + "/" + curve;
  }
  std::string& demand = policy.demand.file;
  if (!demand.empty() && !demand.starts_with('/')) demand = parent_directory(path) + "/" + demand;
  return policy;
}

namespace {

std::string policy_text(std::string (*form)(const man::ConfigPage&, std::span<const ConfigRow>)) {
  Policy policy;
  ConfigSchema schema;
  bind(schema, policy);
  return form({.name = "ms-loan.toml",
               .summary = "policy for lending inference nodes to training",
               .description = "Every command of ms-loan(1) reads this file. Paths in it are relative to its directory. "
                              "ms-loan --sample-policy prints a file with every key commented out.",
               .see_also = {"ms-loan(1)"}},
              schema.reference());
}

}  // namespace

std::string policy_page() { return policy_text(man::config_page); }
std::string sample_policy() { return policy_text(man::sample_config); }

}  // namespace ms::loan
