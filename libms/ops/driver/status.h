// Writes what a driver shows: the status of a run that is driven, for people and programs, and the report of what was.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "driver/ledger.h"
#include "driver/pool.h"
#include "driver/watcher.h"

namespace ms::driver {

struct Status {
  std::string phase;  // "trains", "recovers", "waits", "ended"
  std::string job;
  const Pool& pool;
  const Ledger& ledger;
  const Watcher* watcher;  // nullptr: no attempt runs
};

// One document; times in it are ages.
std::string status_json(const Status& status, double wall_s, double now_s);
// For Prometheus's textfile collector.
std::string status_metrics(const Status& status, double wall_s, double now_s);

// For people, from a status document `age_s` old. Throws Error("driver.status", storage) for what is none.
std::string status_text(std::string_view json, double age_s);
// When the driver wrote a status document, by the wall clock; nullopt: the document does not say.
std::optional<double> written_s(std::string_view status_json);
// Every attempt, and the share of the time that was of use. `seen_s`: when the driver wrote something last. An attempt
// without an end runs no longer where that is a minute ago: the driver ended with its job.
std::string report_text(const Ledger& ledger, double seen_s, double wall_s);

}  // namespace ms::driver
