// Writes what a driver shows: the status of a run that is driven, for people and programs, and the report of what was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "driver/ledger.h"
#include "driver/pace.h"
#include "driver/pool.h"
#include "driver/watcher.h"

namespace ms::driver {

inline constexpr const char* kQueuedAgain = "queued again";

struct Status {
  std::string phase;  // "checks", "trains", "recovers", "waits", kQueuedAgain, "ended"
  std::string job;
  int job_id;  // of Slurm
  const Pool& pool;
  const Ledger& ledger;
  const Watcher* watcher;            // nullptr: no attempt runs
  const Pace::Slow* slow = nullptr;  // nullptr: it is not, or not known to be
};

// For people.
std::string slow_text(const Pace::Slow& slow);
// One document; times in it are ages.
std::string status_json(const Status& status, double wall_s, double now_s);
// For Prometheus's textfile collector.
std::string status_metrics(const Status& status, double wall_s, double now_s);

// For people, from a status document `age_s` old; `runs`: whether its job does, nullopt: not known. Throws
// Error("driver.status", storage) for what is none.
std::string status_text(std::string_view json, double age_s, std::optional<bool> runs);
// When the driver wrote a status document, by the wall clock; nullopt: the document does not say.
std::optional<double> written_s(std::string_view status_json);
// Which start of which job a status document is of, unless that driver has ended; nullopt: it has, or is not known.
struct JobStart {
  std::uint32_t job = 0;
  int restarts = 0;
};
std::optional<JobStart> unended_job(std::string_view status_json);
// Every attempt, and the share of the time that was of use.
std::string report_text(const Ledger& ledger, double wall_s);

}  // namespace ms::driver
