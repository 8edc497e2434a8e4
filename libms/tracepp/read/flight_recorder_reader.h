// Reads PyTorch Flight Recorder dumps in JSON: the last collectives of one rank, each scheduled, started or completed.
// They become issued, begun or ended communication, in order of issue. Operations that have not begun have the time of
// their issue.
#pragma once

#include <cstdint>
#include <string>

#include "tracepp/read/formats.h"
#include "tracepp/read/json_objects.h"
#include "tracepp/read/process_groups.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Returns whether text that begins like this is such a dump. A few kilobytes suffice.
bool is_flight_recorder(std::string_view beginning, bool is_named);

class FlightRecorderReader final : public TraceReader {
 public:
  // Reads into `trace`, which must outlive it.
  explicit FlightRecorderReader(RunTrace& trace) : trace_(trace), tables_(trace) {}

  // Adds one rank, as number -1 if neither the file nor its name says one. Returns the size of its largest group, which
  // is the world; 0: not known.
  std::int64_t read(TextInput& input) override;

 private:
  struct Entry {
    std::string operation, group, description, input_sizes, output_sizes, input_types, output_types, state;
    std::int64_t sequence = -1;
    std::int64_t created_ns = 0, started_ns = 0, completed_ns = 0;
  };
  // A group of the file, made once: it may have a million members, and a million entries.
  struct Known {
    ProcessGroup group;
    std::int32_t index = -1;  // in the run; -1: only transfers between two of its members were seen
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
