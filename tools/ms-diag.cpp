// ms-diag: node diagnostics. Operators run it by hand and in monitoring, users before they requeue, and root in every
// prolog and epilog (through ms_spank.so, or ms-prolog and ms-epilog). It needs only libc and libstdc++; what needs
// more is loaded on demand.
#include "base/cli.h"
#include "base/tool_exits.h"
#include "health/commands/commands.h"
#include "health/commands/extension.h"
#include "health/commands/manual.h"
#include "health/policy.h"
#include "health/telemetry/columns.h"

namespace {

using namespace ms::health;

// Made in main(), because root runs this before every job, with whatever memory there is.
ms::Tool tool() {
  const ms::Option config{.name = "config",
                          .value = "FILE",
                          .doc = "The policy; without it that of the site, /etc/ms/ms-diag.toml, if there is one."};
  const ms::Option json{.name = "json", .doc = "JSON instead of lines for people."};
  const ms::Option nodelist{
      .name = "nodelist", .value = "HOSTLIST", .doc = "On these nodes, by ssh, drained ones too.", .letter = 'w'};
  const ms::Option ssh_config{.name = "ssh-config", .value = "FILE", .doc = "A configuration for that ssh."};
  const ms::Option slurm_deadline{
      .name = "deadline", .value = "TIME", .doc = "How long one question to Slurm may take.", .default_text = "10s"};

  return {
      .name = "ms-diag",
      .summary = "find out whether a node is fit to train",
      .commands =
          {{.name = "run",
            .summary = "run checks and say what they found",
            .options =
                {{.name = "level",
                  .value = "1|2|3",
                  .doc = "1: passive, at once. 2: active too, which loads the node: mostly half a minute, "
                         "at most six. 3: also soaks, and a disk where --directory names one: minutes and more.",
                  .default_text = "1"},
                 {.name = "only",
                  .value = "GLOB",
                  .doc = "Only checks whose codes match, as in 'gpu.*' or 'gpu.*,net.link'.",
                  .default_text = "*"},
                 json,
                 {.name = "nagios", .doc = "One line for Nagios and its kin."},
                 {.name = "prometheus",
                  .value = "FILE",
                  .doc = "Writes FILE too, for the textfile collector, all at once."},
                 {.name = "soak",
                  .value = "TIME",
                  .doc = "At level 3: how long each soak goes on.",
                  .default_text = "60s"},
                 {.name = "memory",
                  .value = "SIZE",
                  .doc = "At level 3: how much memory soak.memory tests; without it half of what is free."},
                 {.name = "directory",
                  .value = "DIR",
                  .doc = "At level 3: where perf.disk writes and reads at most 4 GiB; no file of it stays."},
                 {.name = "deadline",
                  .value = "TIME",
                  .doc =
                      "When all must be done; what is not is skipped. Without it, when the deadlines of all are over."},
                 {.name = "warnings-pass",
                  .doc = "Exits 0 where the worst is a warning, so that srun does not end the job step for it."},
                 nodelist,
                 ssh_config,
                 config,
                 {.name = "verbose", .doc = "Shows what passed and was skipped, too.", .letter = 'v'}},
            .run = run_command},
           {.name = "list", .summary = "show all checks", .options = {json}, .run = list_command},
           {.name = "explain",
            .summary = "say what a finding means and what to do about it",
            .positionals = {{.name = "CODE", .doc = "The code of a check."}},
            .run = explain_command},
           {.name = "history",
            .summary = "show what was decided on this node, or what is known of all nodes of the site",
            .options =
                {json,
                 config,
                 {.name = "site",
                  .doc = "Of all nodes: from paths.site, who was drained more often than its peers; from "
                         "telemetry.directory, which counters of errors rise, and which GPUs are hotter than their "
                         "peers."},
                 {.name = "samples",
                  .value = "HOSTLIST",
                  .doc =
                      "The samples of these nodes from telemetry.directory, as CSV: time (seconds since 1970), node, "
                      "device, metric, value."},
                 {.name = "days",
                  .value = "N",
                  .doc = "With --site and --samples: drains and samples of the last N days.",
                  .default_text = "90"},
                 slurm_deadline,
                 nodelist,
                 ssh_config},
            .run = history_command},
           {.name = "collect",
            .summary = "keep one sample of this node's counters and sensors, for history and prediction",
            .options = {{.name = "print", .doc = "Shows the sample in place of keeping it."},
                        {.name = "json", .doc = "The same as JSON."},
                        {.name = "deadline",
                         .value = "TIME",
                         .doc = "When all must be read; what is not is missing from the sample.",
                         .default_text = "20s"},
                        config},
            .run = collect_command,
            .description =
                "The sample is appended to NODE/DAY.tlm in telemetry.directory. ms-diag-collect.timer does it every "
                "five minutes: systemctl enable --now ms-diag-collect.timer. What cannot be read is missing, never 0. "
                "A value is a 32-bit float: counters beyond 16 million lose their last digits. What a crash or a full "
                "disk left of a sample is cut off when the next one is kept. Where root may not write there (NFS with "
                "root_squash), systemctl edit gives that service a User= who owns the directory; what only root may "
                "read, as the kernel's log, is then missing."},
           {.name = "avoid",
            .summary = "have Slurm use nodes last that are likely to fail, by what ms-diag predict score says",
            .positionals = {{.name = "FILE", .doc = "What ms-diag predict score --json printed."}},
            .options = {{.name = "apply", .doc = "Sets the weights; without it they are only shown."},
                        {.name = "chance",
                         .value = "P",
                         .doc = "Nodes that fail with this chance or a higher one are used last.",
                         .default_text = "0.5"},
                        {.name = "percent",
                         .value = "N",
                         .doc = "At most this part of the nodes, the likeliest to fail, but at least one.",
                         .default_text = "5"},
                        {.name = "max-age",
                         .value = "TIME",
                         .doc = "A prediction whose data end longer ago is refused.",
                         .default_text = "2d"},
                        slurm_deadline,
                        config},
            .run = avoid_command,
            .description =
                "A prediction is no finding: nothing is drained, no job is touched, and a job that needs such a node "
                "gets it. The node's weight in Slurm is raised by a million, so that jobs get other nodes first; it is "
                "lowered again when the chance in a later file is below --chance. A node that a later file says "
                "nothing of stays as it is. A file that does not say that its model showed skill is refused. Run it as "
                "an operator of Slurm after each score, and after scontrol "
                "reconfigure or a new start of slurmctld, which forget such weights. Weights of a million and more are "
                "taken for raised ones: a site that has such weights of its own cannot use this."},
           {.name = "fleet",
            .summary = "compare nodes with their peers: what differs, who is suspect, who was never tested",
            .options = {nodelist,
                        {.name = "partition", .value = "P", .doc = "The nodes of this partition of Slurm."},
                        {.name = "from",
                         .value = "FILE",
                         .doc = "Reads what ms-diag facts printed on the nodes, a line each; - is standard input."},
                        json,
                        {.name = "html", .value = "FILE", .doc = "Writes FILE too, as one page."},
                        ssh_config,
                        config},
            .run = fleet_command,
            .description =
                "Peers are nodes of the same machine, processor and GPUs. A node differs where at least three "
                "of its peers, and more than two thirds, agree on something else; where they do not, the "
                "values are shown and nobody is accused."},
           {.name = "facts",
            .summary = "print what of this node should be as on its peers, as JSON on a line, for fleet",
            .options = {config},
            .run = facts_command},
           {.name = "golden",
            .summary = "learn what good nodes reach in the active checks, and find nodes that reach less",
            .positionals =
                {{.name = "ACTION",
                  .doc = "capture: writes FILE. compare: reads it. peers: the nodes are compared with each other."},
                 {.name = "FILE", .doc = "The golden values; not with peers.", .required = false}},
            .options = {nodelist,
                        {.name = "only",
                         .value = "GLOB",
                         .doc = "With capture and peers: only checks whose codes match.",
                         .default_text = "perf.*"},
                        json,
                        ssh_config,
                        config},
            .run = golden_command,
            .description =
                "Of eight good nodes and more, what lies four spreads and 5% below their median is an outlier; "
                "of fewer nodes the limit is 75% of it. What looks slow is measured once more, and a node is "
                "only accused where both measurements say so."},
           {.name = "check-site",
            .summary = "say what Slurm's configuration lacks for pre-flight to act",
            .options = {json,
                        {.name = "fix", .doc = "Prints the lines to write into Slurm's files, for you to write."},
                        slurm_deadline,
                        config,
                        nodelist,
                        ssh_config},
            .run = check_site_command,
            .description =
                "What it says of gres.conf and of the plugin's file is of the node it runs on: ask a GPU node."},
           {.name = "undrain",
            .summary = "take back ms-diag's own drain of this node",
            .options = {{.name = "verified", .doc = "Only if level 1 now finds nothing that drains."},
                        {.name = "node", .value = "NAME", .doc = "This node's name in Slurm; without it the host's."},
                        config,
                        nodelist,
                        ssh_config},
            .run = undrain_command,
            .description = "Messages of the kernel from before that moment do not count any more. A reason that "
                           "somebody else gave is left alone."},
           {.name = "requeue",
            .summary = "queue a job again, without some nodes",
            .positionals = {{.name = "JOB", .doc = "Its number; inside a job that job.", .required = false}},
            .options = {{.name = "exclude", .value = "HOSTLIST", .doc = "Nodes that it shall not run on again."},
                        {.name = "now",
                         .doc =
                             "Does not wait for Slurm's own delay before a requeued job starts; not inside the job."},
                        slurm_deadline,
                        config},
            .run = requeue_command,
            .description = "Run by the job's owner, inside the job or elsewhere. The nodes are added to those that the "
                           "job excludes already. The job is held for the moment that this takes. Where a node of it "
                           "does not answer it waits first until Slurm has seen that, which then requeues the job."},
           {.name = "notify",
            .summary = "send what happened to Alertmanager and Slack",
            .options = {{.name = "config",
                         .value = "FILE",
                         .doc = "Where to send to.",
                         .default_text = "/etc/ms/ms-notify.toml"},
                        {.name = "run",
                         .value = "DIR",
                         .doc = "Sends what happened to a run of ms-driver, whose directory this is, in place of what "
                                "happened to this node."},
                        {.name = "once", .doc = "Sends what there is and leaves."}},
            .run = notify_command,
            .description = "Runs as any user but root."},
           {.name = "predict",
            .summary = "foresee which nodes fail: learn from faults and telemetry, rank nodes, evaluate that",
            .positionals = {{.name = "ACTION",
                             .doc = "evaluate: how good models are. train: writes FILE. score: reads it."},
                            {.name = "FILE", .doc = "The model.", .required = false}},
            .options =
                {{.name = "faults",
                  .value = "FILE",
                  .doc = "The faults: a CSV with node, time, kind and perhaps end, or the files of InfiniteHBD-Trace "
                         "(JSON) and TitanGPULife (CSV) as they are. Times are UTC or seconds. Up to the last time "
                         "in any of the files it must be complete."},
                 {.name = "nodes",
                  .value = "FILE|N",
                  .doc = "All nodes, those without a fault too: a CSV with node, perhaps first and last, between "
                         "which it is in service, and columns of facts such as age, position, model. Or how many there "
                         "are. Needed unless telemetry is of all nodes, or --faults has the lives of all."},
                 {.name = "telemetry",
                  .value = "PATH",
                  .doc =
                      "A directory of ms-diag collect, or a CSV with time, node, metric and value; with device, too, "
                      "it is as ms-diag history prints samples.",
                  .many = true},
                 {.name = "target",
                  .value = "GLOB",
                  .doc = "The kinds of faults to foresee, as in 'GPU' or 'DBE,OTB'.",
                  .default_text = "*"},
                 {.name = "horizon",
                  .value = "TIME",
                  .doc = "A failure within this time, as in 14d.",
                  .default_text = "30d"},
                 {.name = "lead",
                  .value = "TIME",
                  .doc = "The horizon begins so long after the decision.",
                  .default_text = "0s"},
                 {.name = "models",
                  .value = "NAMES",
                  .doc = "gbdt, mlp, cnn, logistic, parallel, cascade, with commas; all. train takes one.",
                  .default_text = "all"},
                 {.name = "training",
                  .value = "NAMES",
                  .doc = "fixed: the first window. expanding: all before. sliding: the last window, what train does.",
                  .default_text = "sliding"},
                 {.name = "window", .value = "TIME", .doc = "The window of training.", .default_text = "90d"},
                 {.name = "step",
                  .value = "TIME",
                  .doc = "Between two moments that it learns from.",
                  .default_text = "7d"},
                 {.name = "top",
                  .value = "K",
                  .doc = "score: shows so many. evaluate: precision and recall of so many each time.",
                  .default_text = "20"},
                 {.name = "recall",
                  .value = "R",
                  .doc = "evaluate: also the precision where this part of the failures is found.",
                  .default_text = "0.2"},
                 {.name = "folds",
                  .value = "N",
                  .doc = "evaluate: units in so many groups, each scored by models of the others; 1: by those of all.",
                  .default_text = "2"},
                 {.name = "seeds", .value = "N", .doc = "evaluate: models by so many seeds.", .default_text = "5"},
                 {.name = "oracle",
                  .value = "METRIC",
                  .doc = "A metric that no model may see: what a generator knew, as a ceiling."},
                 {.name = "out",
                  .value = "TIME",
                  .doc = "How long a node is out of service that is acted on.",
                  .default_text = "4h"},
                 {.name = "gpus", .value = "N", .doc = "GPUs of such a unit.", .default_text = "8"},
                 {.name = "failure-gpu-hours", .value = "X", .doc = "What a failure costs that nobody foresaw."},
                 {.name = "ranking",
                  .doc = "score: shows the order of a model that showed no skill, too, without chances."},
                 {.name = "csv", .doc = "score: CSV instead of a table."},
                 json},
            .run = predict_command,
            .description =
                "A unit is a node, or a GPU where the faults are of GPUs. Models see counts of faults in the last 1, "
                "7, 30 and 90 days, the time since the last one, facts, and of each metric its level, changes, peak "
                "and spread, each as the distance from the median of all units at the same moment: what changes for "
                "all of them foretells nothing. Rows count the more the nearer their failure is. gbdt is trained by "
                "XGBoost, where its library is installed; to score, nothing is needed. parallel takes the nodes that "
                "are in the top sets of gbdt, mlp and logistic (of cnn where one of them is missing), cascade those "
                "that the CNN does not clear and the MLP ranks high.\n\n"
                "evaluate asks on days that are a horizon apart. Models learn from what was known on that day, and "
                "only "
                "from other nodes than those that they score. Rows whose outcome the data do not reach count nowhere. "
                "It always shows what no model is worth less than: a model of shuffled labels, which must fall to the "
                "base "
                "rate; 'failed recently', which needs none; and the ceiling: the future itself.\n\n"
                "A model shows skill where the interval of its precision at K is above the base rate and above the "
                "shuffled labels. train evaluates what it writes, and score gives chances only by a model "
                "that showed skill: those of the model, but none above the upper bound of what K and the others "
                "measured.\n\n"
                "All files name a unit alike; where they do not, no base rate is known. Facts of --nodes count as "
                "known "
                "on every day: leave out what was found out later, as by a repair. A fault that is logged again is a "
                "new fault: give end, or one row for each.\n\n"
                "Where the data cannot support an answer it says that it cannot know and exits 3. A prediction is no "
                "finding: look at the node with level 2 when it is idle, keep long jobs from it, hold a spare; do not "
                "drain it for that alone."},
           {.name = "prolog",
            .summary = "check this node before a job (for ms_spank.so and ms-prolog)",
            .options = {{.name = "config", .value = "FILE", .doc = "The policy.", .default_text = kPolicyPath}},
            .run = prolog_command,
            .description = "Exits 69 if this node was drained and Slurm shall start the job elsewhere, otherwise 0."},
           {.name = "epilog",
            .summary = "check this node after a failed job (for ms_spank.so and ms-epilog)",
            .options = {{.name = "config", .value = "FILE", .doc = "The policy.", .default_text = kPolicyPath}},
            .run = epilog_command}},
      .description =
          "Looks at the evidence that a node itself gives: its GPUs, its kernel's log, its disks and mounts, "
          "its links. Nothing is changed, except by undrain and requeue. What the checks find is explained in "
          "ms-checks(7).",
      .examples = {{.command = "ms-diag run", .doc = "Is this node healthy?"},
                   {.command = "ms-diag run -w 'node[01-16]' --only 'gpu.*'",
                    .doc = "Ask sixteen nodes for their GPUs:"},
                   {.command = "srun -N2 --ntasks-per-node=1 --mpi=pmix ms-diag run --level 2",
                    .doc = "Load two nodes, and the way between them:"},
                   {.command = "ms-diag run --level 3 --soak 30m --directory /scratch",
                    .doc = "Soak a node that somebody doubts, and measure its disk:"},
                   {.command = "ms-diag golden peers -w 'node[01-16]'",
                    .doc = "Which of sixteen nodes are slower than the others under load?"},
                   {.command = "ms-diag fleet -w 'node[01-16]' --html fleet.html",
                    .doc = "Which of sixteen nodes are not like the others?"},
                   {.command = "ms-diag predict evaluate --faults faults.csv --nodes nodes.csv",
                    .doc = "Can failures of this site be foreseen?"},
                   {.command = "ms-diag explain gpu.remap", .doc = "What is this finding?"}},
      .see_also = {"ms-checks(7)", "ms-diag.toml(5)", "ms-notify.toml(5)", "ms_spank(8)", "ms-train(1)"},
      .exit_status = ms::exits_of("ms-diag"),
      .failure_status = 3,
      .extra_pages = {{.option = "--man-checks", .text = [] { return checks_page(all_checks()); }},
                      {.option = "--man-policy", .text = policy_page},
                      {.option = "--sample-policy", .text = sample_policy},
                      {.option = "--sample-notify", .text = [] { return load_notify_extension().sample(); }},
                      {.option = "--man-notify", .text = [] { return load_notify_extension().page(); }}},
      .sections = {{.title = "SAMPLES", .items = column_terms()}}};
}

}  // namespace

int main(int argc, char** argv) { return ms::run_tool("ms-diag", tool, argc, argv); }
