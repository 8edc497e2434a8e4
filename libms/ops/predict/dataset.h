// Data about the devices whose failures are to be foreseen: their faults, where they stood and what was measured of
// them. A unit is a node, or a GPU where the file of faults is about GPUs. Times are in days, on the clock of the
// files.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace ms::predict {

inline constexpr double kDay_s = 86400;
inline constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
inline constexpr std::size_t kMaxNames = 512;  // of kinds, of facts and of metrics

struct Fault {
  double day = 0;
  double end_day = 0;      // until then the unit is out of service; the same as `day` if the data does not say
  std::uint32_t kind = 0;  // of Dataset::kinds
};

// A time in one place. Between its stays a unit is not in service and nothing is predicted of it.
struct Stay {
  double begin_day = 0, end_day = 0;
  std::vector<float> facts = {};  // as Dataset::facts; kUnknown where not known
  bool begin_known = false;       // else it began before the data
};

struct Unit {
  std::string name = {};           // empty: one of a number of units, of which no file says more
  std::vector<Stay> stays = {};    // ascending
  std::vector<Fault> faults = {};  // ascending
  // Telemetry, metrics x bins, a metric's bins behind one another; empty where the unit has none; kUnknown in a bin
  // without a sample.
  std::vector<float> mean = {}, peak = {};
};

struct Dataset {
  std::vector<Unit> units = {};  // sorted by name, those without one last
  std::vector<std::string> kinds = {}, facts = {}, metrics = {};
  double first_day = 0, last_day = 0;   // of all that was read
  double bin_days = 1;                  // of telemetry
  std::size_t bins = 0;                 // from first_day on
  std::int64_t samples = 0;             // of telemetry that were read
  std::vector<std::string> notes = {};  // what was left out, a line each
};

struct Sources {
  std::string faults = {};                  // a file of one of the layouts below
  std::string nodes = {};                   // a table of all units, or how many there are; empty: neither
  std::vector<std::string> telemetry = {};  // files of samples, or directories of ms-diag collect
  double bin_days = 1;
};

// Layouts of faults, told by their first line or first character:
// - a CSV with node, time, kind and perhaps end: a fault a row;
// - the CSV of olcf/TitanGPULife with SN, location, insert, remove, event: a row with an insert is a stay, one with an
//   event is a fault at `remove`; column, row, cage, slot and node of the place become facts;
// - the JSON of stepfun-ai/InfiniteHBD-Trace: a list of fault_start and fault_end with node_id and event_time in days.
// Nodes: a CSV with node and perhaps first and last, between which it is in service; every other column whose cells are
// numbers is a fact, and of words, too, a number for each word. Telemetry: a CSV with time, node, metric and value.
// Times in CSV are UTC or seconds. Throws Error("data.input", user) with file and line, Error("predict.empty", user)
// where there is no fault.
//
// Units that never failed must be known too: from the nodes, from telemetry, or from a file that has the lives of all.
// Throws Error("predict.units", user) where none of them tells, or where they and the faults name other units; of a few
// unknown it makes a note, and leaves them out.
Dataset read_dataset(const Sources& sources);

}  // namespace ms::predict
