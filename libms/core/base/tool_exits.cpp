#include "base/tool_exits.h"

namespace ms {
namespace {

constexpr ToolExitRow kToolExits[] = {
    {"ms-diag", 0, "No check found a problem."},
    {"ms-netcheck", 0, "No problem was found."},
    {"ms-tracepp", 0, "Done, with or without findings. With --check: nothing was found."},
    {"ms-ckpt", 1, "verify found a damaged checkpoint, or diff found differences. The output names them."},
    {"ms-data", 1, "verify found a damaged token file. Encode the text again."},
    {"ms-diag", 1,
     "A check warned, or nodes differ from their peers. Jobs may run there, but an administrator should look."},
    {"ms-netcheck", 1, "There are only warnings, for example an interface that lost its carrier."},
    {"ms-tracepp", 1, "With --check: something was found. The output names it."},
    {"others", 1,
     "Most programs, including srun, sbatch and Python, exit with 1 when they fail. Their message is in the log."},
    {"ms-diag", 2, "A check is critical. Keep jobs off the node. ms-diag explain FINDING describes what to do."},
    {"ms-netcheck", 2,
     "A node, switch, link or direction is at fault. The output names it. If no single part can be blamed, it names "
     "the unfinished transfers."},
    {"ms-tracepp", 2, "Usage is wrong, or no argument is a readable trace."},
    {"ms-diag", 3, "Unknown: nothing could be checked, or the command line or the configuration is wrong."},
    {"ms-netcheck", 3, "Nothing could be measured, or usage is wrong."},
    {"ms-tracepp", 70, "A bug in ms-tracepp."},
    {"ms-ckpt", 74,
     "Storage failed. Retry with back-off. verify: the system refuses to read a checkpoint, so its state is unknown; "
     "the output has the reason. If the reason is a permission, run verify as the owner."},
    {"ms-tracepp", 74, "The output could not be written."},
};

}  // namespace

std::span<const ToolExitRow> tool_exits() { return kToolExits; }

std::vector<std::pair<int, std::string>> exits_of(std::string_view tool) {
  std::vector<std::pair<int, std::string>> exits;
  for (const ToolExitRow& row : kToolExits) {
    if (row.tool == tool) exits.emplace_back(row.code, row.meaning);
  }
  return exits;
}

}  // namespace ms
