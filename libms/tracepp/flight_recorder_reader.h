// Reads PyTorch Flight Recorder dumps in JSON: the last collectives of one rank, each scheduled, started or completed.
// They become messages: issued, begun, ended, in order of issue. Times of what has not begun are those of its issue.
#pragma once

#include <cstdint>
#include <string>

#include "tracepp/json_objects.h"
#include "tracepp/process_groups.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Whether text that begins like this is such a dump. Some kilobytes suffice.
bool is_flight_recorder(std::string_view beginning);

class FlightRecorderReader {
 public:
  // Read into `trace`, which outlives this.
  explicit FlightRecorderReader(RunTrace& trace) : trace_(trace), tables_(trace) {}

  // Adds one rank: of the number that the file or its name tells; -1: neither does. Returns the ranks of its largest
  // group, which is the world's; 0 where that is not known.
  std::int64_t read(TextInput& input);

 private:
  struct Entry {
    std::string operation, group, description, input_sizes, output_sizes, input_types, output_types, state;
    std::int64_t sequence = -1;
    std::int64_t created_ns = 0, started_ns = 0, completed_ns = 0;
  };
  // A group of the file, made once: it may have a million members, and a million entries.
  struct Known {
    Group group;
    std::int32_t index = -1;  // of the run's; -1: only messages between two of its members were seen
  };
  static bool read_entry(JsonObject& object, Entry& entry);
  void read_groups(std::string_view value, JsonObjects& objects);
  Known& known(const Entry& entry);
  void add(const Entry& entry, RankTrace& rank, std::map<std::int32_t, std::uint32_t>& counts);

  RunTrace& trace_;
  Tables tables_;
  ProcessGroups groups_;
  std::map<std::string, Known> known_;  // by name
};

}  // namespace ms::tracepp
