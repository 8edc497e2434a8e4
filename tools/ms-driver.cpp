// ms-driver: keeps a run alive in its allocation. A table: the commands are in libms/ops/driver/commands.
#include "base/cli.h"
#include "driver/commands.h"
#include "driver/known_lines.h"

namespace {

using namespace ms;  // NOLINT: a main

std::vector<std::pair<std::string, std::string>> line_items() {
  std::vector<std::pair<std::string, std::string>> items;
  for (const driver::KnownLine& row : driver::known_lines()) {
    items.emplace_back(fmt::format("\"{}\"", row.text),
                       fmt::format("{}: accuses {}{}.", row.cause, to_string(row.blame),
                                   row.certain ? ", and its node is left out at once" : ""));
  }
  return items;
}

const std::vector<ManSection> kSections{
    {.title = "WHAT HAPPENS, IN ORDER",
     .items =
         {{"1. Agents",
           "srun starts one agent on every node of the job, spares too. They connect to the driver by TCP and report "
           "four times a second, more seldom above 2000 nodes."},
          {"2. Checks",
           "With --preflight, ms-diag looks at every node, and those that it finds critical are left out."},
          {"3. Attempt",
           "srun starts the command on all nodes but the spares. Its output appears in the job's log, and in "
           "RUN_DIR/driver/attempt-N.log."},
          {"4. Alarm",
           "A rank dies, the step ends, a node and its kernel are silent, or no rank gets on. How long that may last "
           "is learned from the heartbeats, for each section of a step: three times the longest of the last ones, and "
           "5 s; or 4 s where these times are alike, or where for 2 s every rank has waited or had half a processor at "
           "least, so that none is merely slow for want of one. Loops that name no sections get 30 s at least, twice "
           "as long after every hang, unless a signal has "
           "stopped a rank; without heartbeats --hang-timeout counts, and output is the sign of life."},
          {"   Findings",
           "ms-diag looks at every node in mid-run, see --health-every. A spare with a critical finding is left out; a "
           "node at work gives way to a spare. Without a spare it works on, and the log says so."},
          {"   Lost packets",
           "Agents read how many segments each TCP connection of their node has sent again, as ss -ti shows it. When "
           "no rank gets on for three usual steps and 2 s, and 5 % or more of what one node sends and is sent goes "
           "again while it is a fifth of that or less between all others, that node is a suspect, and the run goes on "
           "without it. Two other nodes at least must see it: one connection accuses nobody. RDMA fabrics do not show "
           "in this; for them ms-netcheck looks after a hang."},
          {"5. Evidence",
           "When the run hangs, agents look at all processes: state, processor time and stacks (py-spy's where it is "
           "installed), which they leave in RUN_DIR/driver/attempt-N.NODE.stacks, and have ms-diag read the state of "
           "GPUs, links and host into attempt-N.NODE.devices (3 s at most). PyTorch's flight recorders are read "
           "where TORCH_FR_DUMP_TEMP_FILE or TORCH_NCCL_DEBUG_INFO_TEMP_FILE names them by an absolute path that all "
           "nodes share; ranks with TORCH_NCCL_DEBUG_INFO_PIPE_FILE are asked for them, and have 3 s. Gloo's ranks "
           "answer with the few lines of examples/10-driver/heartbeat.py."},
          {"6. Judgement",
           "Nodes that are lost, that evidence accuses beyond doubt, or that Slurm starts nothing on any more, are "
           "out. Others that may be at fault are suspects: ms-diag looks at them while the others train, and what it "
           "finds nothing of, but a network could have caused, is measured by ms-netcheck with a spare or two. Where "
           "no node stands out, the next attempt waits for what ms-netcheck says of the network between them: nodes "
           "that lose packets are left out, but not those that are merely slow, which does not explain a hang."},
          {"   Collectives that do not match",
           "Where the flight recorders show that ranks called different collectives, or in another order, the cause "
           "is collective_mismatch: the program is wrong, and would be on any nodes, so none is accused, and none is "
           "looked at. Report and ledger say which rank called what. The command starts again once, as a race may not "
           "come again; where it does before another step is done, the driver ends with 93. Of two ranks "
           "nothing tells which is right. Without the recorders such a hang shows no rank that stands out, and all "
           "nodes are suspects."},
          {"7. Next attempt",
           "Spares take the places of those who are out, and the command starts again, by itself from its newest "
           "checkpoint. Attempts that come no further than those before them are delayed, and end the run at "
           "--max-idle."}}},
    {.title = "NODES",
     .items =
         {{"spares", "So many nodes of the job that --spares says wait, the last ones of its list at first."},
          {"suspects",
           "Work only where nobody else is left. ms-diag makes them spares again, or leaves them out. After a hang, "
           "lost packets, or silence of the node, ms-netcheck locate measures the suspect with up to two spares and "
           "with other suspects, over TCP and never with a node at work: at most 16 MiB a stream at 1 Gbit/s, so each "
           "of three nodes sends some 48 MiB, and more only where packets are lost. A node that loses packets by "
           "itself is left out, one of which nothing is seen is a spare. Where nothing can be told, because no other "
           "node is idle or either end may be at fault, it becomes a spare that is taken last, and is left out the "
           "second time, as long as enough others are left. A fabric of RDMA only is not measured by this."},
          {"elastic runs",
           "A run of ms-train with mesh.dp = \"auto\" takes the most nodes that it has work for; the others are "
           "spares. "
           "When nodes are lost it goes on with fewer, from mesh.dp_min on. ms-driver give-back and resize change its "
           "nodes after a checkpoint: those that it lets go of leave the job. At SIGUSR1, "
           "which ms-loan act sends and which needs exec ms-driver in the batch script, the driver looks at the job's "
           "partition: nodes of the job that are no longer in it leave the job. If there are none, and idle nodes "
           "in it would make a larger run, one with --max-nodes saves, and its job is queued again for up to so many: "
           "Slurm adds no nodes to a running job that has GPUs. "
           "With sbatch --nodes=MIN-MAX, leave out --ntasks-per-node, with which Slurm gives the "
           "least, and say --tasks-per-node to ms-driver. For ms-loan the job's comment says \"ms-driver: elastic from "
           "N nodes\", and with --max-nodes the job's restarts and the numbers of nodes that have work."},
          {"too few",
           "Attempts take all nodes but the spares, and at least --min-nodes where that is given: then the command "
           "must do with fewer by itself, as torchrun with --nnodes=MIN:MAX. --shrink does that for ms-train run "
           "with a mesh.dp that is a number. Else the driver ends with 76, or has Slurm queue the job again with "
           "--max-requeues."},
          {"left out", "For good, in the ledger, with the reason: also in later starts of the job."}}},
    {.title = "HOW IT ENDS",
     .items = {{"0", "The command is done. For ms-train run that is what its verdict says, not srun."},
               {"2", "The command or the driver refuses its arguments or its configuration."},
               {"75", "Stopped on purpose, with a checkpoint where the command saves one."},
               {"76", "Too few nodes are left."},
               {"93",
                "Nothing gets on any more: --max-idle, --max-attempts, or collectives that do not match twice on end."},
               {"others", "Another attempt would end the same way: the code of the run, see ms-exit(7)."}}},
    {.title = "THE RUN'S DIRECTORY",
     .items = {{"--run-dir and run.dir",
                "One directory: the driver sets run.dir of ms-train run to its own --run-dir, and refuses another one. "
                "The driver's files are in RUN_DIR/driver, all others are the command's. checkpoint.dir stays as it is "
                "configured."},
               {"ledger.json", "Every attempt, with cause, nodes, suspects and seconds: ms-driver report prints it."},
               {"status.json, metrics.prom", "What it does now, for ms-driver status and Prometheus."},
               {"attempt-N.log, attempt-N.evidence.json, attempt-N.NODE.stacks, attempt-N.NODE.devices",
                "The output of an attempt; what the judgement was made of; the stacks of a run that hung, and what "
                "its nodes' devices said."},
               {"events",
                "What people are told with --notify: that an attempt was interrupted, why and which nodes are accused, "
                "and how the run ended. ms-diag notify --run RUN_DIR sends them too, from wherever the directory is "
                "seen."},
               {"check-NODE.log, check-network.log, agents.log, notify.log",
                "What ms-diag, ms-netcheck, the agents and ms-diag notify said."}}},
    {.title = "KNOWN LINES", .items = line_items()}};

const Tool kTool{
    .name = "ms-driver",
    .summary = "keep a run alive in its allocation",
    .commands = {driver::run_command(), driver::status_command(), driver::report_command(), driver::evict_command(),
                 driver::give_back_command(), driver::resize_command(), driver::stop_command(),
                 driver::agent_command()},
    .description =
        "Runs in the batch script. It starts the command over the nodes of the job, less some spares, hears the "
        "heartbeats of its ranks through an agent on every node, and when a rank dies, a node is lost or the run "
        "hangs, "
        "ends the attempt, finds out which node was at fault, takes a spare in its place, and starts the command again "
        "from its newest checkpoint: in the same allocation, without the queue.\n\n"
        "Start the job with --no-kill, or Slurm ends it with the first node that fails. Driver and agents know each "
        "other by "
        "MUNGE, which must run on every node.\n\n"
        "The command may be anything that srun starts. ms-train sends heartbeats by itself. Others may send a line to "
        "the unix datagram socket that MS_HEARTBEAT names, \"rank=3 step=17 loss=2.41\", after each step; without, the "
        "driver sees exits and silence of the output only. \"section=save\" in a line names what begins now, and gives "
        "it a deadline of its own.",
    .examples = {{.command = "ms-driver run --spares 1 -- ms-train run run.toml",
                  .doc = "In a job script of five nodes, train on four:"},
                 {.command = "ms-driver status --watch runs/1234", .doc = "From a login node, look at it:"},
                 {.command = "ms-driver report runs/1234", .doc = "What the faults have cost:"}},
    .see_also = {"ms-train(1)", "ms-diag(1)", "ms-notify.toml(5)"},
    .environment = {{"MS_HEARTBEAT", "Set for the command: the socket for its heartbeats."},
                    {"MS_ATTEMPT", "Set for the command: the number of the attempt, from 1."}},
    .sections = kSections};

}  // namespace

int main(int argc, char** argv) { return run_tool(kTool, argc, argv); }
