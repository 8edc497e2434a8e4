// ms-diag: node diagnostics. Operators run it by hand and in monitoring, users before they requeue, and root in every
// prolog and epilog (through ms_spank.so, or ms-prolog and ms-epilog). It needs only libc and libstdc++; what needs
// more is loaded on demand.
#include "base/cli.h"
#include "base/tool_exits.h"
#include "health/act/remedies.h"
#include "health/commands/commands.h"
#include "health/commands/extension.h"
#include "health/commands/import_nhc.h"
#include "health/commands/manual.h"
#include "health/policy.h"
#include "health/repair/repair.h"
#include "health/telemetry/columns.h"

namespace {

using namespace ms::health;

// Made in main(), because root runs this before every job, with whatever memory there is.
ms::Tool tool() {
  const ms::Option config{"config", "FILE", "Policy file (default: /etc/ms/ms-diag.toml, if it exists)."};
  const ms::Option json{"json", "", "Print JSON."};
  const ms::Option nodelist{.name = "nodelist",
                            .value = "HOSTLIST",
                            .doc = "Run on these nodes through ssh, drained ones included.",
                            .letter = 'w'};
  const ms::Option ssh_config{"ssh-config", "FILE", "Configuration file for ssh."};
  const ms::Option slurm_deadline{"deadline", "TIME", "Timeout of one request to Slurm.", "10s"};

  return {
      .name = "ms-diag",
      .summary = "check whether a node is fit for training",
      .commands =
          {{.name = "run",
            .summary = "run checks and print their findings",
            .options =
                {{"level", "1|2|3",
                  "1: passive checks, immediate. 2: also active checks, which load the node; usually half a minute, at "
                  "most six minutes. 3: also soak tests and, with --directory, a disk test; minutes or more.",
                  "1"},
                 {"only", "GLOB", "Run only checks with a matching code, as in 'gpu.*' or 'gpu.*,net.link'.", "*"},
                 json,
                 {"nagios", "", "Print one line in the format of Nagios plugins."},
                 {"prometheus", "FILE", "Also write FILE for the textfile collector, atomically."},
                 {"soak", "TIME", "Duration of each soak test at level 3.", "60s"},
                 {"memory", "SIZE", "Memory that soak.memory tests at level 3 (default: half of the free memory)."},
                 {"directory", "DIR",
                  "Directory in which perf.disk writes and reads up to 4 GiB at level 3. It leaves no files."},
                 {"deadline", "TIME",
                  "Skip the checks that have not finished after TIME (default: the deadline of each check)."},
                 {"since", "SECONDS", "Ignore kernel messages from before this time, in seconds since 1970.", "0"},
                 {"warnings-pass", "",
                  "Exit 0 if the worst finding is a warning, so that srun does not end the job step."},
                 nodelist,
                 ssh_config,
                 config,
                 {.name = "verbose", .doc = "Also show checks that passed or were skipped.", .letter = 'v'}},
            .run = run_command},
           {.name = "list", .summary = "show all checks", .options = {json}, .run = list_command},
           {.name = "explain",
            .summary = "explain a finding and its remedy",
            .positionals = {{"CODE", "Code of a check, number of an Xid, or a line of the kernel log with an Xid."}},
            .run = explain_command},
           {.name = "history",
            .summary = "show past decisions on this node, or the history of all nodes of the site",
            .options = {json,
                        config,
                        {"site", "",
                         "Report on all nodes: those drained more often than their peers (from paths.site), rising "
                         "error counters, and GPUs hotter than their peers (from telemetry.directory)."},
                        {"samples", "HOSTLIST",
                         "Print the samples of these nodes in telemetry.directory as CSV: time (seconds since 1970), "
                         "node, device, metric, value."},
                        {"days", "N", "Limit --site and --samples to the last N days.", "90"},
                        slurm_deadline,
                        nodelist,
                        ssh_config},
            .run = history_command},
           {.name = "collect",
            .summary = "record one sample of this node's counters and sensors, for history and predict",
            .options = {{"print", "", "Print the sample instead of recording it."},
                        {"json", "", "Print the sample as JSON instead of recording it."},
                        {"deadline", "TIME", "Leave out values that cannot be read within TIME.", "20s"},
                        config},
            .run = collect_command,
            .description =
                "The sample is appended to NODE/DAY.tlm in telemetry.directory. To record one every five minutes: "
                "systemctl enable --now ms-diag-collect.timer. Values that cannot be read are omitted, not set to 0. "
                "Values are 32-bit floats, so counters above 16 million lose their last digits. A sample truncated by "
                "a crash or a full disk is removed when the next one is written.\n\nIf root cannot write to the "
                "directory (NFS with root_squash), use systemctl edit to set User= of the service to the owner of the "
                "directory. Values that only root can read, such as the kernel log, are then omitted."},
           {.name = "avoid",
            .summary = "raise the Slurm weight of nodes likely to fail, so that jobs get other nodes first",
            .positionals = {{"FILE", "Output of ms-diag predict score --json."}},
            .options = {{"apply", "", "Set the weights (default: only print them)."},
                        {"chance", "P", "Raise the weight of nodes with a failure probability of at least P.", "0.5"},
                        {"percent", "N",
                         "Maximum percentage of nodes with a raised weight; one node is always allowed.", "5"},
                        {"max-age", "TIME", "Reject a prediction based on data older than TIME.", "2d"},
                        slurm_deadline,
                        config},
            .run = avoid_command,
            .description =
                "The weight is raised by a million. No node is drained and no running job is affected; a job that "
                "needs the node still gets it. The weight is lowered again when a later file gives a probability below "
                "--chance. Nodes that a later file does not list keep their weight. Files from a model without "
                "demonstrated skill are rejected.\n\nRun it as a Slurm operator after each score, and after scontrol "
                "reconfigure or a restart of slurmctld, which reset the weights. Weights of a million or more count as "
                "raised, so a site that uses such weights itself cannot use this command."},
           {.name = "fleet",
            .summary = "compare nodes with their peers: differences, suspect nodes, untested nodes",
            .options = {nodelist,
                        {"partition", "P", "Compare the nodes of this Slurm partition."},
                        {"from", "FILE", "Read the output of ms-diag facts, one line per node. - is standard input."},
                        json,
                        {"html", "FILE", "Also write FILE as one HTML page."},
                        ssh_config,
                        config},
            .run = fleet_command,
            .description = "Peers are nodes with the same machine type, CPU and GPUs. A node is reported as different "
                           "if at least three of its peers, and more than two thirds of them, agree on another value. "
                           "Otherwise the values are listed and no node is accused."},
           {.name = "facts",
            .summary = "print the facts that all nodes should share, as one line of JSON (input of fleet)",
            .options = {config},
            .run = facts_command},
           {.name = "golden",
            .summary = "record the rates of good nodes in active checks, and find slower nodes",
            .positionals = {{"ACTION",
                             "capture: record rates in FILE. compare: compare nodes with FILE. peers: compare nodes "
                             "with each other."},
                            {.name = "FILE", .doc = "File of the golden values; not with peers.", .required = false}},
            .options = {nodelist,
                        {"only", "GLOB", "Run only checks with a matching code (capture and peers).", "perf.*"},
                        json,
                        ssh_config,
                        config},
            .run = golden_command,
            .description = "With at least eight good nodes, an outlier is more than four spreads (1.4826 times the "
                           "median absolute deviation) and more than 5% below their median. With fewer nodes, the "
                           "limit is 75% of the median. Slow results are measured a second time, and a node is accused "
                           "only if both measurements are below the limit."},
           {.name = "check-site",
            .summary = "list the settings for the preflight that Slurm's configuration lacks",
            .options = {json,
                        {"fix", "",
                         "Print the lines to add to Slurm's files, and the command that writes a missing policy."},
                        slurm_deadline,
                        config,
                        nodelist,
                        ssh_config},
            .run = check_site_command,
            .description = "The command reads gres.conf and the plugin's file on the node where it runs, so run it on "
                           "a GPU node."},
           import_nhc_command(),
           {.name = "undrain",
            .summary = "undo a drain of this node by ms-diag",
            .options = {{"verified", "", "Undrain only if no check of level 1 has a finding that drains nodes."},
                        {"node", "NAME", "Name of this node in Slurm (default: the host name)."},
                        config,
                        nodelist,
                        ssh_config},
            .run = undrain_command,
            .description = "Kernel messages from before the undrain are ignored from then on. Drains with a reason "
                           "from someone else are not changed."},
           {.name = "repair",
            .summary = "repair drained nodes: remedy, tests, undrain, or a bundle for the vendor",
            .options = {{"apply", "", "Act (default: only print what would be done)."},
                        {"once", "", "Make one pass over all nodes and exit (default: every repair.interval)."},
                        {"here", "REMEDY",
                         "Use this remedy on this node, if it is drained by ms-diag and has no job. The service runs "
                         "this on nodes."},
                        {"node", "NAME", "Name of this node in Slurm (default: the host name)."},
                        slurm_deadline,
                        config,
                        ssh_config},
            .run = repair_command,
            .description = repair_description()},
           {.name = "requeue",
            .summary = "requeue a job, excluding some nodes",
            .positionals =
                {{.name = "JOB", .doc = "ID of the job (default: the job that runs the command).", .required = false}},
            .options = {{"exclude", "HOSTLIST", "Nodes to exclude from the job."},
                        {"now", "", "Skip Slurm's delay before a requeued job starts. Not possible inside the job."},
                        slurm_deadline,
                        config},
            .run = requeue_command,
            .description = "Run it as the job's owner, inside the job or elsewhere. The nodes are added to those that "
                           "the job already excludes; the job is held meanwhile. If a node of the job does not "
                           "respond, the command waits until Slurm notices this and requeues the job itself."},
           {.name = "notify",
            .summary = "send events to Alertmanager and Slack",
            .options = {{"config", "FILE", "Configuration, see ms-notify.toml(5).", "/etc/ms/ms-notify.toml"},
                        {"run", "DIR", "Send the events of the ms-driver run in DIR instead of those of this node."},
                        {"once", "", "Send pending events and exit."}},
            .run = notify_command,
            .description = "The command refuses to run as root."},
           {.name = "predict",
            .summary = "predict node failures: train on faults and telemetry, rank nodes, evaluate models",
            .positionals = {{"ACTION",
                             "evaluate: measure models. train: write a model to FILE. score: apply the model in FILE."},
                            {.name = "FILE", .doc = "File of the model.", .required = false}},
            .options = {{"faults", "FILE",
                         "Faults: a CSV with node, time, kind and optionally end, or an unmodified file of "
                         "InfiniteHBD-Trace (JSON) or TitanGPULife (CSV). Times are UTC, or seconds on one clock. The "
                         "list must be complete up to the last time in any of the input files."},
                        {"nodes", "FILE|N",
                         "All nodes, including those without faults, or their number. The CSV has the column node. "
                         "Optional columns are first and last, when the node entered and left service, and facts such "
                         "as age, position, model. Required unless the telemetry or --faults covers all nodes."},
                        {.name = "telemetry",
                         .value = "PATH",
                         .doc = "Directory of ms-diag collect, or a CSV with time, node, metric, value and optionally "
                                "device, as printed by ms-diag history --samples.",
                         .many = true},
                        {"target", "GLOB", "Kinds of faults to predict, as in 'GPU' or 'DBE,OTB'.", "*"},
                        {"horizon", "TIME", "Predict failures within this time, as in 14d.", "30d"},
                        {"lead", "TIME", "Delay between the prediction and the start of the horizon.", "0s"},
                        {"models", "NAMES",
                         "Comma-separated list of gbdt, mlp, cnn, logistic, parallel, cascade; or all. train needs "
                         "exactly one.",
                         "all"},
                        {"training", "NAMES",
                         "Data to train on. fixed: the first window. expanding: all earlier data. sliding: the last "
                         "window, as train does.",
                         "sliding"},
                        {"window", "TIME", "Length of the training window.", "90d"},
                        {"step", "TIME", "Interval between training examples.", "7d"},
                        {"top", "K",
                         "score: number of nodes to print. evaluate: number of nodes flagged per date for precision "
                         "and recall.",
                         "20"},
                        {"recall", "R", "evaluate: also print the precision at this recall.", "0.2"},
                        {"folds", "N",
                         "evaluate: cross-validation folds over units (nodes, or GPUs if faults are per GPU). 1: train "
                         "and score on all units.",
                         "2"},
                        {"seeds", "N", "evaluate: number of seeds per model.", "5"},
                        {"oracle", "METRIC",
                         "Hide this metric from the models, and print the precision that it reaches as an upper bound. "
                         "For synthetic data."},
                        {"out", "TIME", "Time that a flagged node is out of service.", "4h"},
                        {"gpus", "N", "GPUs per unit.", "8"},
                        {"failure-gpu-hours", "X", "Cost of a failure that was not predicted, in GPU hours."},
                        {"ranking", "",
                         "score: accept a model without demonstrated skill. Its ranking has no probabilities."},
                        {"csv", "", "score: print CSV."},
                        json},
            .run = predict_command,
            .description =
                "A unit is a node, or a GPU if the faults are per GPU. The features are the number of faults in the "
                "last 1, 7, 30 and 90 days, the time since the last fault, the facts of --nodes, and the level, "
                "changes, peak and spread of each metric. Each metric is taken relative to the median of all units at "
                "the same time, so changes common to all units have no effect. Examples closer to a failure get more "
                "weight. Training gbdt requires the XGBoost library; scoring does not. parallel selects nodes that "
                "three models rank at the top: gbdt, mlp and logistic, or cnn if one of these is not available. "
                "cascade takes the top fifth of the ranking of cnn, and ranks these nodes with mlp.\n\n"
                "evaluate makes predictions at dates one horizon apart. Models are trained only on data known at that "
                "date, and (except with --folds 1) not on the nodes that they score. Examples with an unknown outcome "
                "are not used. For comparison it always prints three more rows: a model trained on shuffled labels, "
                "whose precision must fall to the base rate; 'failed recently', a rule without a model; and an upper "
                "bound that knows the future.\n\n"
                "A model has skill if the confidence interval of its precision at K is above the base rate and above "
                "the precision of the model trained on shuffled labels. train also evaluates the model that it writes. "
                "score prints probabilities only for a model with skill. No probability exceeds the upper bound of the "
                "measured precision.\n\n"
                "All files must use the same names of units; otherwise the base rate is unknown. Facts of --nodes "
                "count as known at all dates, so leave out facts found later, for example by a repair. Each row counts "
                "as one fault, so list a fault once even if it is logged repeatedly, or give its end.\n\n"
                "If the data are insufficient, the command reports that and exits 3. A prediction is not a finding. "
                "Check the node at level 2 when it is idle, keep long jobs off it, and hold a spare; do not drain it "
                "for a prediction alone."},
           {.name = "prolog",
            .summary = "check this node before a job (for ms_spank.so and ms-prolog)",
            .options = {{"config", "FILE", "Policy file.", kPolicyPath}},
            .run = prolog_command,
            .description = "Exits 69 if it drained this node and Slurm should start the job elsewhere, otherwise 0."},
           {.name = "epilog",
            .summary = "check this node after a failed job (for ms_spank.so and ms-epilog)",
            .options = {{"config", "FILE", "Policy file.", kPolicyPath}},
            .run = epilog_command},
           {.name = "health",
            .summary = "check this node between jobs (for Slurm's HealthCheckProgram)",
            .options = {{"config", "FILE", "Policy file.", kPolicyPath}},
            .run = health_command,
            .description = health_text()}},
      .description =
          "ms-diag checks the hardware and the system of a node: GPUs, kernel log, disks and mounts, network links. "
          "Only undrain, requeue, avoid --apply, repair --apply and, in mode act, prolog, epilog and health change the "
          "state of Slurm. ms-checks(7) explains the findings.",
      .examples = {{"ms-diag run", "Check this node:"},
                   {"ms-diag run -w 'node[01-16]' --only 'gpu.*'", "Check the GPUs of sixteen nodes:"},
                   {"srun -N2 --ntasks-per-node=1 --mpi=pmix ms-diag run --level 2",
                    "Test two nodes and the network between them under load:"},
                   {"ms-diag run --level 3 --soak 30m --directory /scratch",
                    "Soak-test a suspect node and measure its disk:"},
                   {"ms-diag golden peers -w 'node[01-16]'", "Find nodes that are slower than the others under load:"},
                   {"ms-diag fleet -w 'node[01-16]' --html fleet.html", "Find nodes that are configured differently:"},
                   {"ms-diag predict evaluate --faults faults.csv --nodes nodes.csv",
                    "Test whether failures of this site can be predicted:"},
                   {"ms-diag explain gpu.remap", "Explain a finding:"}},
      .see_also = {"ms-checks(7)", "ms-diag.toml(5)", "ms-notify.toml(5)", "ms_spank(8)", "ms-train(1)"},
      .exit_status = ms::exits_of("ms-diag"),
      .failure_status = 3,
      .extra_pages = {{.option = "--man-checks", .text = [] { return checks_page(all_checks()); }},
                      {.option = "--man-policy", .text = policy_page},
                      {.option = "--sample-policy", .text = sample_policy},
                      {.option = "--sample-notify", .text = [] { return load_notify_extension().sample(); }},
                      {.option = "--man-notify", .text = [] { return load_notify_extension().page(); }}},
      .sections = {{"SITE CHECKS", site_check_terms()}, {"REMEDIES", remedy_terms()}, {"SAMPLES", column_terms()}}};
}

}  // namespace

int main(int argc, char** argv) { return ms::run_tool("ms-diag", tool, argc, argv); }
