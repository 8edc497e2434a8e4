// The incidents of a run, from the files of its driver: what was seen where and when, what the sources of evidence say,
// and what was done. For the page of `ms-driver report -o`. All texts are untrusted.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "driver/ledger.h"
#include "driver/state.h"

namespace ms::driver {

enum class Sort : std::uint8_t { progress, output, evidence, check, slurm, action };  // of a moment
std::string_view to_string(Sort sort);

struct Moment {
  double at_s = 0;  // wall clock, since 1970
  Sort sort = Sort::evidence;
  std::string source;  // "heartbeats", "kernel log", "NCCL's RAS", ...
  std::string node;    // empty: of the whole run
  std::string text;
};

// The statement of one source by itself.
struct Claim {
  std::string source, stance, text, file;  // stance: as of ms-tracepp hang; empty: not compared
};

struct Candidate {  // for the rank at fault
  std::string who, reason, doing;
  double confidence = 0;
};

// The state of a rank when the run hung.
struct RankLook {
  int rank = -1;
  std::string node, doing, stack;
};

struct Incident {
  const AttemptEntry* attempt = nullptr;  // that it ended
  const AttemptEntry* next = nullptr;     // the attempt after it; nullptr: none came
  double fault_s = 0, alarm_s = 0;        // wall clock; the same where nothing tells them apart
  std::string verdict;                    // of all sources; empty: they were not joined
  std::vector<Candidate> candidates;      // the likeliest first
  std::string collect;                    // what to collect to be surer; empty: nothing
  std::vector<Claim> claims;
  std::vector<RankLook> ranks;
  std::vector<std::string> evidence;
  std::vector<Moment> moments;      // by time
  std::vector<std::string> unread;  // files that could not be read, with the reason
};

// Returns the incidents of a run: the attempts that ended other than well, the newest first, at most `most`. The ledger
// outlives them.
std::vector<Incident> read_incidents(const Ledger& ledger, const DriverFiles& files, std::size_t most);

// Returns the nodes that an incident concerns: those at fault, accused, lost or left out, and those with a moment of
// their own.
std::set<std::string> nodes_of(const Incident& incident);

// Returns the page, as of `now_s`, with `name` for the run.
std::string incident_page(const Ledger& ledger, const std::vector<Incident>& incidents, const std::string& name,
                          double now_s);
// Returns the time axis of an incident as SVG: a row for the run and one for each of the nodes it concerns, with the
// moments by number, counted from 1.
std::string time_axis(const Incident& incident, double now_s);

}  // namespace ms::driver
