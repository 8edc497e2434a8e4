// Findings: what slows a run down, as a code from a table with ranks, steps, cost and evidence. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ms::tracepp {

enum class FindingCode : std::uint8_t {
  slow_rank,
  slow_link,
  pause,
  data_stall,
  launch_delay,
  last_stage,
  slow_stage,
  uneven_sequences,
};

// A row of the table of codes.
struct FindingKind {
  FindingCode code;
  std::string_view name;  // as printed, and in JSON
  bool is_fault;          // something broke; false: a property of the run's layout
  bool is_delay;          // a rank is idle though all that it needs is there; else operations take longer
  std::string_view doc;   // a sentence for the manual
};
std::span<const FindingKind> finding_kinds();  // in the order of the enum
const FindingKind& kind_of(FindingCode code);
std::string_view to_string(FindingCode code);
// "slow_rank, slow_link": the names of all codes that are faults, or of all that are not.
std::string finding_names(bool faults);

struct Finding {
  FindingCode code = FindingCode::slow_rank;
  std::vector<int> ranks;  // the most likely one first
  std::int64_t first_step = 0, last_step = 0;
  double cost_s = 0;       // seconds of a step, mean of all steps
  double cost_share = 0;   // of Diagnosis::measured_s
  double confidence = 0;   // 0 .. 1
  std::string evidence;    // a sentence
  std::string doubt = {};  // why the cause may lie in what is missing of the traces; empty: it does not
  std::string hint = {};   // what to do; may be empty
  std::string line = {};   // of the host, where most of it is: "train.py(212): step"; may be empty
};

inline bool is_fault(const Finding& finding) { return kind_of(finding.code).is_fault; }
inline bool is_delay(const Finding& finding) { return kind_of(finding.code).is_delay; }

}  // namespace ms::tracepp
