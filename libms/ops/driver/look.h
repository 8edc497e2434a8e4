// A look at the tasks of a job on this node from outside, for `ms-driver inspect`: stacks, flight recorders, NCCL's
// RAS, devices and health, as files. The job is not changed, and need not have prepared anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sysroot.h"
#include "driver/tasks.h"

namespace ms::driver {

// Writes what a look at a node gave to `dir`, in the names that ms-tracepp hang knows: attempt-N.NODE.stacks and
// attempt-N.ras.NODE.M. The state of the devices comes last, in attempt-N.NODE.devices, for a driver of theirs may
// hang, too.
void write_look(const std::string& dir, int attempt, const std::string& node, const std::string& stacks,
                const std::vector<std::string>& ras, const std::string& diag);

// Returns those of a job's tasks that are its run: of the given step, else of the newest attempt of ms-driver, else of
// the newest step. A batch script, which has no step, is the run where no step is. `own_step`: of this process. Pure.
std::vector<Task> run_of(std::vector<Task> tasks, int own_step, std::optional<int> step);

struct NodeLook {
  std::string node;
  int step = -1;  // of the run; -1: the batch script
  int ranks = 0;
  std::vector<std::string> missing;  // what could not be had, and why
};
std::string to_json(const NodeLook& look);
std::optional<NodeLook> read_node_look(std::string_view text);  // nullopt: not understood

struct LookOptions {
  int job = 0, own_step = -1;
  std::optional<int> step;
  std::string node, dir, diag;
  Sysroot root;
  std::int64_t most_dump_bytes = std::int64_t{128} << 20;  // of a flight recorder: ms-tracepp reads no larger pickle
};
// Looks, writes the files, and at last look-NODE.json. Files of flight recorders and of NCCL's Inspector are copied to
// DIR/dumps, the report of ms-diag is check-NODE.json. Takes some seconds.
void look_into_node(const LookOptions& options);

}  // namespace ms::driver
