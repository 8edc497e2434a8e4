#include "loan/policy.h"

#include "base/file.h"
#include "base/man.h"

namespace ms::loan {
namespace {

constexpr Field<ClusterConfig> kClusterFields[] = {
    {.key = "train_nodes",
     .member = &ClusterConfig::train_nodes,
     .doc = "Nodes that are training's own.",
     .min = 1,
     .max = 100'000},
    {.key = "inference_nodes",
     .member = &ClusterConfig::inference_nodes,
     .doc = "Nodes of inference, which may be loaned.",
     .min = 0,
     .max = 100'000},
    {.key = "gpus_per_node",
     .member = &ClusterConfig::gpus_per_node,
     .doc = "GPUs of each of these nodes.",
     .min = 1,
     .max = 64},
};

constexpr Field<LoanConfig> kLoanFields[] = {
    {.key = "poll",
     .member = &LoanConfig::poll_s,
     .doc = "How often the demand of inference is read.",
     .unit = Unit::seconds,
     .min = 0.1,
     .max = 3600},
    {.key = "grace",
     .member = &LoanConfig::grace_s,
     .doc =
         "The longest time from a rise of demand to the return of the nodes: one poll, for jobs to save after their "
         "signal, and what Slurm takes to end a job, its KillWait and slurm.end. act and observe refuse one that has "
         "no room for these.",
     .unit = Unit::seconds,
     .min = 0.1,
     .max = 86'400},
    {.key = "lend_interval",
     .member = &LoanConfig::lend_interval_s,
     .doc = "How often idle nodes go on loan. Nodes come back at every poll.",
     .unit = Unit::seconds,
     .min = 1,
     .max = 86'400},
    {.key = "reserve_quantile",
     .member = &LoanConfig::reserve_quantile,
     .doc = "Nodes stay with inference up to this quantile of the demand of the last reserve_window, and at least what "
            "it asks for now.",
     .min = 0,
     .max = 1},
    {.key = "reserve_window",
     .member = &LoanConfig::reserve_window_s,
     .doc = "The time that reserve_quantile looks back.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 30 * 86'400.0},
    {.key = "headroom_percent",
     .member = &LoanConfig::headroom_percent,
     .doc = "Nodes that inference has above its demand now, in percent of that, rounded up; they are taken back for it "
            "too.",
     .min = 0,
     .max = 100},
    {.key = "grow",
     .member = &LoanConfig::grow,
     .doc = "act tells elastic runs to take nodes on loan that are idle while no job waits for them, every "
            "schedule.interval. Only runs under ms-driver run --max-nodes are told, which save and are queued again."},
    {.key = "shrink",
     .member = &LoanConfig::shrink,
     .doc = "act asks elastic runs for nodes above their least when a job of the loan partition waits that would fit "
            "then: the shortest by its time limit first."},
};

constexpr Field<ScheduleConfig> kScheduleFields[] = {
    {.key = "interval",
     .member = &ScheduleConfig::interval_s,
     .doc = "How often the extra workers of elastic jobs are chosen anew.",
     .unit = Unit::seconds,
     .min = 1,
     .max = 86'400},
    {.key = "horizon",
     .member = &ScheduleConfig::horizon_s,
     .doc = "Extra workers are worth what they save on this much of a job's work, or on what is left of it: the rest "
            "of a long job can be sped up later.",
     .unit = Unit::seconds,
     .min = 1,
     .max = 1e9},
    {.key = "settle",
     .member = &ScheduleConfig::settle_s,
     .doc = "A run that began or grew less than so long ago is not asked for nodes for jobs that wait. Inference gets "
            "its nodes at any time.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 7 * 86'400.0},
    {.key = "backfill_depth",
     .member = &ScheduleConfig::backfill_depth,
     .doc = "Waiting jobs behind the first one that backfill looks at.",
     .min = 1,
     .max = 100'000},
};

constexpr Field<JobsConfig> kJobsFields[] = {
    {.key = "days",
     .member = &JobsConfig::days,
     .doc = "Replay the days in a row, so many, in which the most jobs were submitted; 0 for the whole file.",
     .min = 0,
     .max = 10'000},
    {.key = "copies",
     .member = &JobsConfig::copies,
     .doc = "How often each job is submitted, on average; copies come up to an hour later.",
     .min = 0.001,
     .max = 1000},
    {.key = "gpus_times",
     .member = &JobsConfig::gpus_times,
     .doc = "GPUs of every job are multiplied by this.",
     .min = 1,
     .max = 1024},
    {.key = "elastic_percent",
     .member = &JobsConfig::elastic_percent,
     .doc = "So many of the jobs are elastic, those with the most GPUs. A file with the column max_gpus says itself "
            "which are.",
     .min = 0,
     .max = 100},
    {.key = "max_times",
     .member = &JobsConfig::max_times,
     .doc = "Such an elastic job takes up to this many times its GPUs.",
     .min = 1,
     .max = 64},
    {.key = "curves",
     .member = &JobsConfig::curves,
     .doc = "Files of measured step times (columns num_replicas, local_bsz, step_time), one of which each elastic job "
            "follows; none: its speed is that of its GPUs."},
    {.key = "estimate_error_percent",
     .member = &JobsConfig::estimate_error_percent,
     .doc =
         "Estimates of run times are wrong by up to this much, either way. A file with the column time_limit has its "
         "own estimates.",
     .min = 0,
     .max = 99},
    {.key = "preempt_overhead",
     .member = &JobsConfig::preempt_overhead_s,
     .doc =
         "Time that a preempted job loses at its next start, to start and load. The default was measured on Slurm with "
         "a tiny model; a large one takes as much longer as its checkpoint takes to load.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 86'400},
    {.key = "scale_overhead",
     .member = &JobsConfig::scale_overhead_s,
     .doc = "Time that an elastic job loses when its workers change. The default was measured with a tiny model that "
            "saves and grows through the queue; to shrink took it 2.4 s.",
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
     .doc = "For observe and act: the file that says how many nodes inference needs now, a number."},
    {.key = "command",
     .member = &DemandConfig::command,
     .doc = "Or the command that prints it, with its arguments; it has as long as slurm.deadline."},
    {.key = "low_percent",
     .member = &DemandConfig::low_percent,
     .doc = "The demand's range within the replay is stretched so that its lowest value is this part of the inference "
            "nodes; -1, and high_percent -1: it is taken as it is.",
     .min = -1,
     .max = 100},
    {.key = "high_percent",
     .member = &DemandConfig::high_percent,
     .doc = "And its highest value this part.",
     .min = -1,
     .max = 100},
};

constexpr Field<SlurmConfig> kSlurmFields[] = {
    {.key = "nodes",
     .member = &SlurmConfig::nodes,
     .doc = "The inference nodes that may be loaned, a hostlist. No other node is ever touched."},
    {.key = "loan_partition",
     .member = &SlurmConfig::loan_partition,
     .doc = "The partition of jobs on loan, whose list of nodes is ms-loan's own: the nodes on loan. No other "
            "partition, and no job of another one, is ever touched."},
    {.key = "signal",
     .member = &SlurmConfig::signal,
     .doc = "The signal for the batch script of a job that is going to lose a node, as sbatch --signal=B: sends it: "
            "time to save, for what loan.grace leaves beside loan.poll, Slurm's KillWait and slurm.end; then the job "
            "is queued again. A script without a trap for it ends. Empty: none."},
    {.key = "state",
     .member = &SlurmConfig::state,
     .doc = "The directory in which act keeps what it watched, its decisions and metrics.prom for Prometheus."},
    {.key = "scontrol", .member = &SlurmConfig::scontrol, .doc = "Slurm's command; squeue and scancel lie beside it."},
    {.key = "conf",
     .member = &SlurmConfig::conf,
     .doc = "The slurm.conf that these are to read; empty for Slurm's own default."},
    {.key = "deadline",
     .member = &SlurmConfig::deadline_s,
     .doc = "How long one call of Slurm may take.",
     .unit = Unit::seconds,
     .min = 0.1,
     .max = 600},
    {.key = "end",
     .member = &SlurmConfig::end_s,
     .doc = "What Slurm takes beside KillWait to end a job and to have its nodes idle: its answers and the epilog. "
            "An assumption; KillWait is Slurm's own.",
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
  schema.section("loan", "When nodes go on loan, and how they come back.", policy.loan, kLoanFields);
  schema.section("schedule", "How training's jobs are scheduled.", policy.schedule, kScheduleFields);
  schema.section("jobs", "What a replay makes of its file of jobs.", policy.jobs, kJobsFields);
  schema.section("demand", "The demand of inference: where it is read, and what a replay makes of its file.",
                 policy.demand, kDemandFields);
  schema.section("slurm", "The Slurm in which observe and act work.", policy.slurm, kSlurmFields);
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
  return form(
      {.name = "ms-loan.toml",
       .summary = "the policy by which inference nodes go on loan to training",
       .description = "Read by every command of ms-loan(1). Without a key its default holds. Files that it names are "
                      "relative to its own directory. ms-loan --sample-policy prints one with every key "
                      "commented out.",
       .see_also = {"ms-loan(1)"}},
      schema.reference());
}

}  // namespace

std::string policy_page() { return policy_text(man::config_page); }
std::string sample_policy() { return policy_text(man::sample_config); }

}  // namespace ms::loan
