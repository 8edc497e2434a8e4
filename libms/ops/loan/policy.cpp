#include "loan/policy.h"

#include "base/file.h"
#include "base/man.h"

namespace ms::loan {
namespace {

constexpr Field<ClusterConfig> kClusterFields[] = {
    {"train_nodes", &ClusterConfig::train_nodes, "Number of nodes owned by training.", Unit::none, 1, 100'000},
    {"inference_nodes", &ClusterConfig::inference_nodes, "Number of nodes owned by inference, which may be lent.",
     Unit::none, 0, 100'000},
    {"gpus_per_node", &ClusterConfig::gpus_per_node, "GPUs per node.", Unit::none, 1, 64},
};

constexpr Field<LoanConfig> kLoanFields[] = {
    {"poll", &LoanConfig::poll_s, "Interval for reading the demand of inference.", Unit::seconds, 0.1, 3600},
    {"grace", &LoanConfig::grace_s,
     "Maximum time from a rise of demand to the return of the nodes. It covers one poll, the time for jobs to save "
     "after their signal, and the time for Slurm to end a job (KillWait and slurm.end). act and observe reject a value "
     "too short for these.",
     Unit::seconds, 0.1, 86'400},
    {"lend_interval", &LoanConfig::lend_interval_s,
     "Interval for lending idle nodes. Nodes are reclaimed at every poll.", Unit::seconds, 1, 86'400},
    {"reserve_quantile", &LoanConfig::reserve_quantile,
     "Inference keeps nodes for this quantile of its demand in the last reserve_window, and at least for its current "
     "demand.",
     Unit::none, 0, 1},
    {"reserve_window", &LoanConfig::reserve_window_s, "Time window of reserve_quantile.", Unit::seconds, 0,
     30 * 86'400.0},
    {"headroom_percent", &LoanConfig::headroom_percent,
     "Extra nodes for inference, as a percentage of its current demand, rounded up. Nodes on loan are reclaimed for "
     "them too.",
     Unit::none, 0, 100},
    {"grow", &LoanConfig::grow,
     "Let elastic runs take idle nodes on loan that no job waits for, every schedule.interval. This applies to runs of "
     "ms-driver run --max-nodes, which save and are requeued."},
    {"shrink", &LoanConfig::shrink,
     "Take nodes from elastic runs, down to their minimum, if a waiting job of the loan partition then fits. The job "
     "with the shortest time limit is first."},
};

constexpr Field<ScheduleConfig> kScheduleFields[] = {
    {"interval", &ScheduleConfig::interval_s, "Interval for reassigning the extra workers of elastic jobs.",
     Unit::seconds, 1, 86'400},
    {"horizon", &ScheduleConfig::horizon_s,
     "Part of a job's remaining work in which the time saved by extra workers counts. Work after that can be sped up "
     "later.",
     Unit::seconds, 1, 1e9},
    {"settle", &ScheduleConfig::settle_s,
     "Minimum time after the start or growth of a run before its nodes are taken for waiting jobs. Inference can "
     "reclaim nodes at any time.",
     Unit::seconds, 0, 7 * 86'400.0},
    {"backfill_depth", &ScheduleConfig::backfill_depth,
     "Number of waiting jobs after the first that backfill considers.", Unit::none, 1, 100'000},
};

constexpr Field<JobsConfig> kJobsFields[] = {
    {"days", &JobsConfig::days,
     "Replay this many consecutive days, those with the most submitted jobs. 0: the whole file.", Unit::none, 0,
     10'000},
    {"copies", &JobsConfig::copies,
     "Average number of submissions of each job. Copies are submitted up to an hour later.", Unit::none, 0.001, 1000},
    {"gpus_times", &JobsConfig::gpus_times, "Multiply the GPUs of every job by this.", Unit::none, 1, 1024},
    {"elastic_percent", &JobsConfig::elastic_percent,
     "Percentage of jobs that are elastic, those with the most GPUs first. Ignored if the file has a column max_gpus.",
     Unit::none, 0, 100},
    {"max_times", &JobsConfig::max_times, "Maximum size of such an elastic job as a multiple of its GPUs.", Unit::none,
     1, 64},
    {"curves", &JobsConfig::curves,
     "Files of measured step times (columns num_replicas, local_bsz, step_time). Each elastic job follows one of them. "
     "Empty: jobs scale linearly with their GPUs."},
    {"estimate_error_percent", &JobsConfig::estimate_error_percent,
     "Maximum error of run time estimates in either direction. Ignored if the file has a column time_limit.",
     Unit::none, 0, 99},
    {"preempt_overhead", &JobsConfig::preempt_overhead_s,
     "Time that a preempted job loses at its next start. The default was measured on Slurm with a tiny model; add the "
     "time to load the checkpoint of a large model.",
     Unit::seconds, 0, 86'400},
    {"scale_overhead", &JobsConfig::scale_overhead_s,
     "Time that an elastic job loses when its workers change. The default was measured with a tiny model that saves "
     "and grows through the queue; shrinking took 2.4 s.",
     Unit::seconds, 0, 86'400},
    {"seed", &JobsConfig::seed, "Seed of copies, curves, errors of estimates and random victims.", Unit::none, 0, 1e15},
};

constexpr Field<DemandConfig> kDemandFields[] = {
    {"file", &DemandConfig::file, "File with the number of nodes that inference currently needs, for observe and act."},
    {"command", &DemandConfig::command,
     "Command with arguments that prints this number, within slurm.deadline. Use either file or command."},
    {"low_percent", &DemandConfig::low_percent,
     "Scale the demand of the replay so that its minimum is this percentage of the inference nodes. -1 for both "
     "low_percent and high_percent: do not scale.",
     Unit::none, -1, 100},
    {"high_percent", &DemandConfig::high_percent, "Scale the demand so that its maximum is this percentage.",
     Unit::none, -1, 100},
};

constexpr Field<SlurmConfig> kSlurmFields[] = {
    {"nodes", &SlurmConfig::nodes, "Hostlist of the inference nodes that may be lent. Other nodes are never changed."},
    {"loan_partition", &SlurmConfig::loan_partition,
     "Partition for jobs on loan. ms-loan sets its node list to the nodes on loan. Other partitions and their jobs are "
     "never changed."},
    {"signal", &SlurmConfig::signal,
     "Signal for the batch script of a job that will lose a node, sent as with sbatch --signal=B:. The job has "
     "loan.grace minus loan.poll, Slurm's KillWait and slurm.end to save, and is then requeued. A script without a "
     "trap for the signal ends. Empty: no signal."},
    {"state", &SlurmConfig::state,
     "Directory for the recorded demand, the decision log, and metrics.prom for Prometheus. It must belong to the user "
     "of ms-loan act. No other user may write in it or in a directory above it, except in those with the sticky bit."},
    {"scontrol", &SlurmConfig::scontrol, "Path of scontrol. squeue and scancel must be in the same directory."},
    {"conf", &SlurmConfig::conf, "The slurm.conf for these commands. Empty: Slurm's default."},
    {"deadline", &SlurmConfig::deadline_s, "Timeout of one Slurm command.", Unit::seconds, 0.1, 600},
    {"end", &SlurmConfig::end_s,
     "Estimated time, in addition to KillWait, until Slurm has ended a job and its nodes are idle, including the "
     "epilog.",
     Unit::seconds, 0, 3600},
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
