// The registry of pipeline schedules that [mesh] schedule can name. A schedule is one file (gpipe.cpp, ...) that
// defines its row, and one line in registry.cpp. The configuration, its documentation, the plan, the tuner and
// ms-tracepp iterate over the rows. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sched/schedule.h"

namespace ms::sched {

// A row. Two rows with the same key are forms of one schedule: the number of chunks selects between them.
struct ScheduleKind {
  std::string_view key;   // the value of [mesh] schedule
  std::string_view name;  // in reports; differs from the key only where another row has that key
  std::string_view doc;   // a clause for ms.toml(5)
  // The rule for chunks: either at least two, or exactly one.
  bool interleaves = false;
  bool whole_groups = false;     // microbatches must be a multiple of pp
  bool splits_backward = false;  // into backward_input and backward_weight
  bool tuned = true;             // ms-train tune tries it
  // Returns the computations of a rank in order, without slot and channel. The shape fits the rules above. Each (rank,
  // chunk) runs its backwards in rising order of microbatch, so that gradients are summed in one order and have the
  // same bits whatever the schedule.
  std::vector<Row> (*order)(const Shape& shape, int rank);
  // The bubble by its closed formula: idle time of a rank in a step where transfers take none. The checker, which runs
  // the real schedules, agrees with it (tests/unit/sched).
  double (*bubble)(const Shape& shape, const Times& times);

  bool takes(int chunks) const { return interleaves == (chunks > 1); }
  std::string title() const;  // "interleaved 1f1b"
};

// All rows, those with one key together. The first that fits what a trace shows is taken for its schedule.
std::span<const ScheduleKind* const> schedule_kinds();

// The row with this key that takes `chunks`; null if there is none.
const ScheduleKind* find_kind(std::string_view key, int chunks);
// Whether any row has this key.
bool is_schedule(std::string_view key);

// "1f1b, zb-h1, gpipe"
std::string schedule_keys();
// The documentation of all rows: "1f1b: one forward, one backward; ...".
std::string schedule_docs();

}  // namespace ms::sched
