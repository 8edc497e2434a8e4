// Reads Chrome trace files: those that PyTorch's profiler (Kineto) writes for a rank, those that NDTimeline and
// StragglerAnalysis write for many ranks (pipeline_timeline.h), and any other, whose events keep their names and are of
// Kind::other.
//
// Kineto's times become nanoseconds since 1970, exactly; its NCCL kernels become communication with group and number;
// its other kernels single ops; a ProfilerStep#5 is step 5, and the events that begin inside it belong to it. Where no
// device computes, CPU operators are the ops. Collectives of gloo name no group: they are numbered by their order, and
// have a group if the job has just one.
#pragma once

#include <cstdint>
#include <string>

#include "tracepp/read/chrome_events.h"
#include "tracepp/read/event_order.h"
#include "tracepp/read/formats.h"
#include "tracepp/read/process_groups.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Returns whether text that begins like this is a Chrome trace: if the user named the file, any JSON; else only text
// with keys that are unique to such traces.
bool is_chrome_trace(std::string_view beginning, bool is_named);

class ChromeReader : public TraceReader {
 public:
  static constexpr int kNoRank = -1;

  // Reads into `trace`, which must outlive it.
  explicit ChromeReader(RunTrace& trace) : trace_(trace), tables_(trace) {}

  // Adds the ranks of one file, as number kNoRank if neither the file nor its name says one. Returns how many ranks the
  // run has by the file; 0: it does not say. Unreadable records are counted.
  std::int64_t read(TextInput& input) override;

 protected:
  struct Header {
    std::int64_t base_ns = 0, world = 0;
    int rank = kNoRank;
    bool is_kineto = false;
    std::string host;
    std::vector<std::string> devices;  // their names, by number
    ProcessGroups groups;
  };
  // Adds the ranks of what was read. `by_name`: the file's name may tell the rank.
  void add_ranks(ChromeFile& file, const Header& header, const std::string& path, bool by_name = true);

  RunTrace& trace_;

 private:
  struct Meaning;  // of a ChromeInfo
  // The groups of a file, each made once: one may have a million members, and a million events that name it.
  struct KnownGroup {
    ProcessGroup group;
    std::vector<int> sorted;  // its ranks
    std::int32_t index = -1;  // in the run; -1: only transfers between two of its members were seen
  };
  using KnownGroups = std::map<std::pair<std::uint32_t, std::uint32_t>, KnownGroup>;  // by texts: name, ranks
  // Returns false if the text ended inside it.
  static bool read_object(JsonText& text, TextInput& input, ChromeFile& file, ChromeEvents& events, Header& header);
  static bool read_distributed(JsonObject& object, Header& header);
  std::vector<Meaning> meanings(ChromeFile& file, const Header& header, std::vector<RankTrace>& ranks);
  EventInfo comm_of(const ChromeFile& file, const ChromeInfo& info, const Header& header, int rank,
                    KnownGroups& groups);

  Tables tables_;
};

}  // namespace ms::tracepp
