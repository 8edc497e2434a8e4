// Exit codes of every ms program. Job scripts and the driver obey them, so a code never changes its meaning.
// The manual page ms-exit(7) and tests/lint compare themselves with kExitCodes.
#pragma once

#include <array>
#include <string_view>

namespace ms {

enum class ExitCode : int {
  done = 0,
  check_failed = 1,  // a verification or a check said no
  usage = 2,         // usage or configuration: never retry
  node_fault = 69,   // this node is at fault: exclude it, retry
  bug = 70,          // our bug: stop, keep the evidence
  storage = 74,      // storage: retry with back-off
  stopped = 75,      // stopped on purpose, checkpoint committed: requeue
  peer_lost = 76,    // a peer was lost: relaunch on healthy nodes
  no_progress = 93,  // do not requeue
};

struct ExitCodeRow {
  ExitCode code;
  std::string_view name;
  std::string_view meaning;  // what happened, and what the caller should do
};

inline constexpr std::array<ExitCodeRow, 9> kExitCodes{{
    {ExitCode::done, "done", "Everything asked for was done."},
    {ExitCode::check_failed, "check_failed", "A verification or a check failed."},
    {ExitCode::usage, "usage", "Usage or configuration is wrong. Never retry."},
    {ExitCode::node_fault, "node_fault", "This node is at fault. Exclude it and retry."},
    {ExitCode::bug, "bug", "A bug in ms. Stop and keep the evidence."},
    {ExitCode::storage, "storage", "Storage failed. Retry with back-off."},
    {ExitCode::stopped, "stopped", "Stopped on purpose with a committed checkpoint. Requeue."},
    {ExitCode::peer_lost, "peer_lost", "A peer was lost. Relaunch on healthy nodes."},
    {ExitCode::no_progress, "no_progress", "No progress over several attempts. Do not requeue."},
}};

}  // namespace ms
