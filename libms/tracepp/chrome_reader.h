// Reads Chrome trace files: what PyTorch's profiler (Kineto) writes for a rank, what NDTimeline and StragglerAnalysis
// write for many (pipeline_timeline.h), and any other, whose events keep their names and are of Kind::other.
//
// Kineto's times become nanoseconds since 1970, exactly; its NCCL kernels messages with group and number; its other
// kernels single ops; a ProfilerStep#5 is step 5, and what begins inside it belongs to it.
#pragma once

#include <cstdint>
#include <string>

#include "tracepp/chrome_events.h"
#include "tracepp/process_groups.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

class ChromeReader {
 public:
  static constexpr int kNoRank = -1;

  // Read into `trace`, which outlives this.
  explicit ChromeReader(RunTrace& trace) : trace_(trace), tables_(trace) {}

  // Adds the ranks of one file: of number kNoRank, where neither the file nor its name tells. Returns how many ranks
  // the file says the run has; 0: it does not. What cannot be read is counted.
  std::int64_t read(TextInput& input);

 private:
  struct Header {
    std::int64_t base_ns = 0, world = 0;
    int rank = kNoRank;
    bool is_kineto = false;
    std::string host;
    ProcessGroups groups;
  };
  struct Meaning;  // of a ChromeWhat
  // Groups of a file, each made once: it may have a million members, and a million messages that name it.
  struct KnownGroup {
    Group group;
    std::vector<int> sorted;  // its ranks
    std::int32_t index = -1;  // of the run's; -1: only messages between two of its members were seen
  };
  using KnownGroups = std::map<std::pair<std::uint32_t, std::uint32_t>, KnownGroup>;  // by texts: name, ranks
  // False: the text ended inside it.
  static bool read_object(JsonText& text, TextInput& input, ChromeFile& file, ChromeEvents& events, Header& header);
  static bool read_distributed(JsonObject& object, Header& header);
  void add_ranks(ChromeFile& file, const Header& header, const std::string& path);
  std::vector<Meaning> meanings(ChromeFile& file, const Header& header, std::vector<RankTrace>& ranks);
  What message_of(const ChromeFile& file, const ChromeWhat& what, const Header& header, int rank, KnownGroups& groups);

  RunTrace& trace_;
  Tables tables_;
};

// Puts events in order of begin; those that begin together stay in order.
void sort_by_begin(std::vector<Event>& events);

}  // namespace ms::tracepp
