// ms-driver: restarts a run after faults within its allocation. A table: the commands are in libms/ops/driver/commands.
#include "base/cli.h"
#include "driver/commands.h"
#include "slurm/known_lines.h"

namespace {

using namespace ms;  // NOLINT: a main

const char* consequence(slurm::Says says) {
  using slurm::Says;
  if (says == Says::proof) return "; the node is excluded at once";
  if (says == Says::mistake) return "; the run ends";
  if (says == Says::hint) return "; the node is checked if no other node prints it";
  return "";
}

std::vector<std::pair<std::string, std::string>> line_items() {
  std::vector<std::pair<std::string, std::string>> items;
  for (const slurm::KnownLine& row : slurm::known_lines()) {
    items.emplace_back(fmt::format("\"{}\"", row.text),
                       fmt::format("Cause {}, blame {}{}. Printed by {}.", row.cause, to_string(row.blame),
                                   consequence(row.says), row.source));
  }
  return items;
}

const std::vector<ManSection> kSections{
    {"HOW IT WORKS",
     {{"1. Agents",
       "srun starts one agent on every node of the job, spares included. Agents connect to the driver by TCP and "
       "report four times a second, less often above 2000 nodes."},
      {"2. Checks", "With --preflight, ms-diag checks every node. Nodes with critical findings are excluded."},
      {"3. Attempt",
       "srun starts the command on all nodes but the spares. Its output goes to the job's log and to "
       "RUN_DIR/driver/attempt-N.log. When a task exits with an error, the others have 0.7 s to exit and to print why; "
       "then the driver ends them. srun would kill them at once, and lose what they and the first one print. "
       "--srun=--kill-on-bad-exit=0 or 1 leaves this to srun."},
      {"4. Alarm",
       "An attempt ends when a rank dies, the job step ends, a node is lost, or no rank makes progress before a "
       "deadline. A node is lost when two conditions hold: its agent and its kernel are silent for 1.5 s, and no rank "
       "makes progress for 1.5 times the longest recent time of its section of a step. A silent node may merely be "
       "paused or cut off, so it gets --node-timeout instead if no spare could replace it, or if the command has no "
       "heartbeats and the connection to the agent is still open. The driver learns a deadline from the heartbeats for "
       "each section of a step: three times the longest recent time plus 5 s. The margin drops to 4 s if these times "
       "are alike. It also drops to 4 s if for 2 s every rank was waiting or had at least half a CPU; lack of CPU time "
       "then cannot explain the delay. Loops without named sections get at least 30 s, doubled after every hang, "
       "unless a signal stopped a rank. After a node was silent, ranks get as long again, because TCP waits that long "
       "before it sends again what was lost. Without heartbeats, --hang-timeout without output is a hang."},
      {"   Findings",
       "ms-diag also checks every node during training (--health-every). A spare with a critical finding is excluded; "
       "a working node is replaced by a spare. Without a spare it keeps working, and the driver logs a warning."},
      {"   Lost packets",
       "Agents count the retransmitted segments of each TCP connection of their node, as ss -ti shows them. A node "
       "becomes a suspect, and the run continues without it, if three conditions hold: no rank makes progress for "
       "three usual steps plus 2 s; at least 5 % of the segments to and from the node are retransmitted; and the "
       "retransmitted share between all other nodes is at most a fifth of this node's share. At least two other nodes "
       "must see the losses, so one bad connection accuses no node. RDMA traffic does not appear in these counts; "
       "ms-netcheck covers it after a hang."},
      {"   Slow runs",
       "If steps take more than twice as long as before, over some 15 s and 24 steps, ms-driver status and report show "
       "by how much, and the time lost. The ranks of a synchronous program wait for the slowest, so their steps do not "
       "tell which node is slow. A node is named only if its ranks, and no rank of another node, are stopped, get no "
       "processor, or wait for a device in half of the reports. More work on one rank names no node. ms-tracepp "
       "stragglers names slow ranks of runs that record traces.\n\nWith --replace-slow, the driver weighs what the "
       "named "
       "node costs against what another one costs, unless it waits for a device, which may be storage that all nodes "
       "share. Slow steps cost the time by which they are longer, for as long as the node is expected to stay slow: "
       "the mean of 12 hours and of the times after which slow nodes of the ledger were well again. Another attempt, "
       "which would begin without the node, or the end of the job's time may come before that. A ready spare costs a "
       "restart: the mean of 2 minutes and of those in the ledger. Without a spare, and with --max-requeues, the job "
       "is requeued without the node if its partition has an idle node and --queue-wait and a restart cost less. A "
       "node that is left is left at the next checkpoint, and ms-diag checks it if it stays in the job; it works again "
       "where no other node is left. A node that costs less keeps working: the log and the ledger have the reason "
       "(recovery.slow_stays)."},
      {"5. Evidence",
       "After a hang, agents write the state, CPU time and stacks of all processes (with py-spy if installed) to "
       "RUN_DIR/driver/attempt-N.NODE.stacks. ms-diag writes the state of GPUs, links and host to "
       "attempt-N.NODE.devices, within 3 s. The driver reads PyTorch's flight recorder dumps if "
       "TORCH_FR_DUMP_TEMP_FILE or TORCH_NCCL_DEBUG_INFO_TEMP_FILE names them by an absolute path that all nodes "
       "share. If ranks have TORCH_NCCL_DEBUG_INFO_PIPE_FILE, their agent requests dumps from them and waits up to 3 "
       "s. For Gloo, add the few lines of examples/10-driver/heartbeat.py. The driver keeps the heartbeats of the "
       "moment in attempt-N.heartbeats.json."},
      {"6. Verdict",
       "ms-tracepp hang joins flight recorders, NCCL's RAS, stacks, heartbeats and the newest 16 MiB of the output to "
       "one verdict on a hang, as ms-driver inspect does. If it is sure (80 %), it decides. A cause in a host, a "
       "device or the network accuses the node. Calls that do not match and other errors of the program accuse no "
       "node. If nothing tells whether the node or the program is at fault, ms-diag checks the node, and it is not "
       "accused. If the verdict is not sure, a rank that is stopped, gone, a step behind, or alone in what it does "
       "accuses its node. If such a rank contradicts a sure verdict, no node is accused. The driver excludes nodes "
       "that are lost, that the evidence clearly accuses, or on which Slurm can no longer start processes. Other nodes "
       "that may be at fault become suspects, and ms-diag checks them while the others train. If ms-diag finds "
       "nothing, and the network may be the cause, ms-netcheck measures the suspect together with one or two spares. "
       "If no node stands out, the next attempt waits for ms-netcheck to measure the network between all nodes. Nodes "
       "that lose packets are excluded; slow nodes are not, because slowness does not explain a hang."},
      {"   Last words",
       "A command that exits with 0 is done, whatever it printed. Otherwise, KNOWN OUTPUT LINES and exceptions near "
       "the end tell why it ended. A line does not count if its rank made progress or printed 20 more lines after it. "
       "A node is excluded for a line only if no program can cause it and no other node printed it; other suspects are "
       "only checked, which does not count against them. If the same error (numbers aside) ends two attempts in a row "
       "without progress, or --max-same-error with progress, the driver exits with 93 and names the error, its rank, "
       "step and nodes. If it occurred on more than one node, the program is at fault, and no node is suspected. A "
       "hang counts as such an error if some ranks, but not all, printed one before it and no other rank stands out."},
      {"   Mismatched collectives",
       "If the flight recorders show that ranks called different collectives, or called them in a different order, the "
       "cause is collective_mismatch. This is an error of the program, so no node is accused or checked. The report "
       "and the ledger show which rank called which collective; with two ranks, it is unknown which one is right. "
       "Because the cause may be a race, the command is restarted once. If the mismatch recurs before another step is "
       "done, the driver exits with 93. Without flight recorders, no rank stands out in such a hang, and all nodes "
       "become suspects."},
      {"7. Next attempt",
       "Spares replace the excluded nodes, and the command starts again; it resumes from its newest checkpoint by "
       "itself. Attempts without progress are retried with increasing delays until --max-idle."}}},
    {"NODES",
     {{"spares", "--spares nodes of the job stay idle, at first the last ones in its list."},
      {"suspects",
       "Suspects work only if no other node is left. ms-diag turns them into spares again or excludes them. After a "
       "hang, lost packets, or silence of the node, ms-netcheck locate measures the suspect with up to two spares and "
       "with other suspects, over TCP, and never with a working node. It sends at most 16 MiB per stream at 1 Gbit/s "
       "(some 48 MiB per node with three nodes), and more only if packets are lost. A node that loses packets by "
       "itself is excluded; a node without symptoms becomes a spare. If the result is unclear, because no other node "
       "is idle or either end may be at fault, the suspect becomes the last spare to be used. If it ends another "
       "attempt and the result is unclear again, it is excluded, unless too few other nodes are left. This does not "
       "measure RDMA-only fabrics."},
      {"repaired nodes",
       "An excluded node stays excluded in the run, also after a requeue. If it is in the job and was repaired since, "
       "ms-driver readmit makes it a suspect without strikes, which is checked as above and then a spare."},
      {"elastic runs",
       "ms-train run with mesh.dp = \"auto\" uses as many nodes as it has work for; the others are spares. When nodes "
       "are lost it continues with fewer, down to mesh.dp_min. ms-driver resize changes the number of nodes after a "
       "checkpoint, and give-back also releases nodes from the job.\n\nms-loan act sends SIGUSR1, which requires exec "
       "ms-driver in the batch script. The driver then compares the job with its partition and releases nodes that are "
       "no longer in it. If there are no such nodes, and idle nodes of the partition allow a larger run, a run with "
       "--max-nodes N saves a checkpoint and requeues its job for up to N nodes. It is requeued because Slurm adds no "
       "nodes to a running job that has GPUs.\n\nWith sbatch --nodes=MIN-MAX, do not pass --ntasks-per-node to sbatch, "
       "because Slurm then allocates only MIN nodes. Pass --tasks-per-node to ms-driver instead. For ms-loan, the "
       "job's comment contains \"ms-driver: elastic from N nodes\". With --max-nodes it also lists the restarts and "
       "the node counts that the run can use."},
      {"too few",
       "An attempt needs all nodes but the spares, or --min-nodes. With --min-nodes, the command itself must adapt to "
       "fewer nodes, as torchrun with --nnodes=MIN:MAX does. For ms-train run with a fixed mesh.dp, --shrink adapts "
       "it. With too few nodes the driver exits with 76, or requeues the job with --max-requeues. It first waits until "
       "Slurm has marked the lost node as down, at most SlurmdTimeout plus a minute: Slurm may hold a job forever that "
       "is requeued earlier. If slurmctld does not answer, it retries for 10 minutes. If the node of the batch script "
       "is lost, and the driver with it, Slurm keeps a --no-kill job on the other nodes: the agent of one of them then "
       "requeues the job.\n\nIf the script of a job of sbatch --requeue=expedite (Slurm 25.11) fails, Slurm starts the "
       "job again if an epilog failed, and holds it otherwise. If another start mends nothing, the driver sets "
       "Requeue=0 before it ends, so that Slurm does neither. The script must exit with the driver's code."},
      {"drained",
       "ms-driver status and report show that an administrator drains a node of the run, within --health-every. The "
       "run leaves the node at its next checkpoint: ms-train saves one at once; other commands are left when a section "
       "named save or checkpoint has ended and every rank has done another step. A spare replaces the node, and the "
       "job lets go of it. Without a spare, or if the node runs the batch script, the job is requeued with "
       "--max-requeues; otherwise the node keeps working until the attempt ends. The driver never undrains a node."},
      {"excluded", "Excluded nodes stay in the ledger with the reason, also across restarts of the job."}}},
    {"EXIT CODES OF A RUN",
     {{"0", "The command succeeded. For ms-train run, its verdict file decides, not srun's exit status."},
      {"2", "The command or the driver rejected its arguments or its configuration."},
      {"74", "Ten attempts in a row ended for storage, or could not begin for it, over some 14 minutes."},
      {"75", "Stopped on request, with a checkpoint if the command saves one."},
      {"76", "Too few nodes are left."},
      {"93",
       "No progress: --max-idle or --max-attempts was reached, or the same error or collective mismatch occurred twice "
       "in a row. If the command exits with 93 on any rank, the driver does not restart it and exits with 93."},
      {"others", "The exit code of the run, if another attempt would end the same way; see ms-exit(7)."}}},
    {"RUN DIRECTORY",
     {{"--run-dir and run.dir",
       "Both are the same directory: the driver sets run.dir of ms-train run to its own --run-dir, and rejects another "
       "value. The driver writes to RUN_DIR/driver; all other files are the command's. checkpoint.dir is not changed."},
      {"ledger.json",
       "Every attempt with cause, nodes, suspects and times; in excluded every node that the driver left out, with the "
       "reason; and notes: clocks that jumped, drained nodes, slow steps, "
       "slow nodes that stay. time_s has the wall time in the types of Google's ml-goodput-measurement, which add up "
       "to it: productive steps (until a fault), tpu_initialization (checks before the first attempt), program_startup "
       "(until the first step), wasted_progress_from_disruption (steps that were done again), "
       "infrastructure_recovery_from_disruption "
       "(from a fault to the next attempt: until it is noticed, while evidence is taken and the ranks are ended, and "
       "until the next attempt begins), custom_badput_events (lost to slow steps), elastic_reinitialization, and "
       "other. Waits for data and checkpoints are not told from the steps that have them. "
       "ms-driver report prints it. While it cannot be written, the driver continues, and the job's comment has the "
       "reason why attempts do not begin or why the run ended, unless you set a comment of your own."},
      {"status.json, metrics.prom",
       "Current state, for ms-driver status and for Prometheus's textfile collector; "
       "ms_driver_time_seconds{type} is time_s of the ledger."},
      {"attempt-N.log, attempt-N.evidence.json, attempt-N.hang.json, attempt-N.NODE.stacks, attempt-N.NODE.devices, "
       "attempt-N.ras.NODE.M, attempt-N.heartbeats.json, attempt-N.hang.input.log",
       "Output of an attempt; the evidence for its verdict; what ms-tracepp hang printed of all that a hang left; "
       "stacks of a hung run; state of its nodes' devices; report M of NCCL's RAS, if the run uses NCCL 2.24 or newer: "
       "agents of two nodes ask twice; the status when it hung; the newest output before that. ms-tracepp hang reads "
       "all of them, and of several attempts only the newest."},
      {"events",
       "Notifications of --notify: interruptions with the reason and the accused nodes, and how the run ended. ms-diag "
       "notify --run RUN_DIR can also send them, from any machine that sees the directory."},
      {"check-NODE.json, check-network.json, the same in .log, agents.log, notify.log",
       "Reports of ms-diag and ms-netcheck, with their error output; output of the agents and ms-diag notify."}}},
    {"KNOWN OUTPUT LINES", line_items()}};

// Made in main(): options that commands share are constants of other files, which are not set before it.
Tool tool() {
  return {
      .name = "ms-driver",
      .summary = "restart a run after faults within its allocation",
      .commands = {driver::run_command(), driver::status_command(), driver::report_command(), driver::evict_command(),
                   driver::readmit_command(), driver::give_back_command(), driver::resize_command(),
                   driver::stop_command(), driver::inspect_command(), driver::look_command(), driver::agent_command()},
      .description =
          "ms-driver runs in the batch script. It starts the command on the nodes of the job, except for spares, "
          "and receives heartbeats of the ranks through an agent on every node. When a rank dies, a node is lost "
          "or the run hangs, it ends the attempt, finds the node at fault, replaces it by a spare, and restarts "
          "the command from its newest checkpoint. The job keeps its allocation and does not wait in the queue "
          "again.\n\nStart the job with --no-kill; otherwise Slurm ends it when the first node fails. Driver and "
          "agents authenticate each other with MUNGE, which must run on every node.\n\nThe command may be anything "
          "that srun starts. ms-train sends heartbeats by itself. Other programs can send a line such as \"rank=3 "
          "step=17 loss=2.41\" after each step to the UNIX datagram socket in MS_HEARTBEAT. Without heartbeats, "
          "the driver sees only exits and whether there is output. \"section=save\" in a line marks the start of a "
          "section, which gets a deadline of its own. A node whose agent cannot make the socket, because another "
          "user's file is in the way or /tmp is full, runs without heartbeats: status and report show that, and "
          "status.json and ledger.json have it as \"unheard\". It is not blamed for it.",
      .examples = {{"ms-driver run --spares 1 -- ms-train run run.toml",
                    "In a job script for five nodes, train on four:"},
                   {"ms-driver status --watch runs/1234", "Follow the run from a login node:"},
                   {"ms-driver report runs/1234", "Show the attempts and the time lost to faults:"},
                   {"ms-driver report -o incident.html runs/1234",
                    "Write what broke, where, and what was done as one page to mail:"},
                   {"ms-driver inspect 1234", "Ask a running job why it hangs, also one without ms-driver:"}},
      .see_also = {"ms-train(1)", "ms-diag(1)", "ms-notify.toml(5)"},
      .environment = {{"MS_HEARTBEAT", "Socket for heartbeats; set for the command."},
                      {"MS_ATTEMPT", "Number of the attempt, from 1; set for the command."}},
      .sections = kSections};
}

}  // namespace

int main(int argc, char** argv) { return run_tool("ms-driver", tool, argc, argv); }
