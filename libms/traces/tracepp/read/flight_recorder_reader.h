// Reads PyTorch Flight Recorder dumps, JSON or pickled: the last collectives of one rank, each scheduled, started or
// completed. They become issued, begun or ended communication, in order of issue, whatever the order in the file.
// Operations that have not begun have the time of their issue.
//
// NCCL's recorder watches the operations' events. Gloo's has none: every state stays "scheduled", and an operation is
// known to have ended because it is retired, or because the status of its group counts it as completed. Both also hold
// for one that failed, and gloo records no sends and recvs. What only all dumps of a run tell together is in
// flight_recorder_run.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tracepp/read/flight_recorder_entries.h"
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
  std::int64_t read(TextInput& input) override { return read(input, false); }
  // The same; `is_cut_off`: what the text was made of ended early.
  std::int64_t read(TextInput& input, bool is_cut_off);

 private:
  // A group of the file, made once: it may have a million members, and a million entries.
  struct Known {
    ProcessGroup group;
    std::int32_t index = -1;  // in the run; -1: only transfers between two of its members were seen
  };
  static bool read_entry(JsonObject& object, RecorderEntry& entry);
  void read_groups(std::string_view value, JsonObjects& objects);
  void read_status(std::string_view value, JsonObjects& objects);
  Known& known(const RecorderEntry& entry);
  // Returns the rank that a send or recv shows: it says by which member of its group it was issued. -1: none does.
  int own_rank(const std::vector<RecorderEntry>& entries);
  void add(std::vector<RecorderEntry>& entries, RankTrace& rank);
  void add(const RecorderEntry& entry, RankTrace& rank, std::map<std::int32_t, std::uint32_t>& counts);

  RunTrace& trace_;
  Tables tables_;
  ProcessGroups groups_;
  std::map<std::string, Known> known_;  // by name
  RecorderStatuses statuses_;
};

// Reads the dumps that PyTorch writes by itself when a collective times out.
class FlightRecorderPickleReader final : public TraceReader {
 public:
  explicit FlightRecorderPickleReader(RunTrace& trace) : trace_(trace), reader_(trace) {}

  // Throws Error("data.pickle", user) if the file holds more than plain data, or no dump.
  std::int64_t read(TextInput& input) override;

 private:
  RunTrace& trace_;
  FlightRecorderReader reader_;
};

}  // namespace ms::tracepp
