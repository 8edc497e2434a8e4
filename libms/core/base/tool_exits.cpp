#include "base/tool_exits.h"

namespace ms {
namespace {

constexpr ToolExitRow kToolExits[] = {
    {"ms-diag", 0, "No check found anything."},
    {"ms-netcheck", 0, "Nothing was found."},
    {"ms-tracepp", 0, "Done; without --check also where something was found."},
    {"ms-ckpt", 1, "verify found a checkpoint that is damaged, or diff found two that differ. The output names them."},
    {"ms-data", 1, "verify found a token file that is not sound. Encode the text again."},
    {"ms-diag", 1, "A check warned, or nodes differ from their peers: jobs may run there, and somebody should look."},
    {"ms-netcheck", 1, "Only warnings: an interface lost its carrier."},
    {"ms-tracepp", 1, "With --check: something was found. The output names it."},
    {"others", 1,
     "Most programs end with it where they fail, srun, sbatch and Python too: what they said is in the log."},
    {"ms-diag", 2, "A check is critical: keep jobs off the node. ms-diag explain FINDING says more."},
    {"ms-netcheck", 2,
     "A node, switch, link or direction is at fault. The output names it, or what did not end if nothing tells them "
     "apart."},
    {"ms-tracepp", 2, "Usage is wrong, or nothing named is a trace that can be read."},
    {"ms-diag", 3, "Unknown: nothing could be checked, or the command line or the configuration is wrong."},
    {"ms-netcheck", 3, "Nothing could be measured, or the command is wrong."},
    {"ms-tracepp", 70, "A bug in ms-tracepp."},
    {"ms-ckpt", 74,
     "Storage failed: retry with back-off. verify: the system refuses to read a checkpoint, and nobody knows whether "
     "it is sound; the output says why. Where that is a permission, another try changes nothing: verify as its owner."},
    {"ms-tracepp", 74, "What it writes could not be written."},
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
