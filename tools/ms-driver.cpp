// ms-driver: keeps a run alive in its allocation. A table: the commands are in libms/driver/commands.
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

const Tool kTool{
    .name = "ms-driver",
    .summary = "keep a run alive in its allocation",
    .commands = {driver::run_command(), driver::status_command(), driver::report_command(), driver::evict_command(),
                 driver::stop_command(), driver::agent_command()},
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
        "driver sees exits and silence of the output only.",
    .examples = {{.command = "ms-driver run --spares 1 -- ms-train run run.toml",
                  .doc = "In a job script of five nodes, train on four:"},
                 {.command = "ms-driver status --watch runs/1234", .doc = "From a login node, look at it:"},
                 {.command = "ms-driver report runs/1234", .doc = "What the faults have cost:"}},
    .see_also = {"ms-train(1)", "ms-diag(1)", "ms-exit(7)"},
    .environment = {{"MS_HEARTBEAT", "Set for the command: the socket for its heartbeats."},
                    {"MS_ATTEMPT", "Set for the command: the number of the attempt, from 1."}},
    .sections = {{.title = "KNOWN LINES", .items = line_items()}}};

}  // namespace

int main(int argc, char** argv) { return run_tool(kTool, argc, argv); }
