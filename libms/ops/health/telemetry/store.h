// Where samples are kept: DIRECTORY/NODE/2026-11-26.tlm (day_file.h), a file for each day in UTC. The directories
// belong to the user who collects. Only this user writes to them; everybody may read them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "health/policy.h"
#include "health/telemetry/sample.h"

namespace ms::health {

struct KeptSample {
  std::string file = {};
  std::size_t bytes = 0;          // of this sample, with its header where one was needed
  std::size_t dropped_bytes = 0;  // a record that an earlier writer did not finish, which was cut off
  std::size_t removed_days = 0;   // files older than telemetry.days
};

// Appends it to the file of its day, under a lock; the first sample of a day removes the files that are too old.
// Throws Error("telemetry.write", node), and leaves what was there: where the directory is not the caller's own, the
// disk is full, the file holds telemetry.day_size already, or is none of ours.
KeptSample keep_sample(const std::string& directory, const std::string& node, const Sample& sample,
                       const TelemetryConfig& config);

std::string day_file_name(double wall_s);
// The beginning of the day of a file, in seconds since 1970; nullopt: the name is none.
std::optional<double> day_of_file(std::string_view name);

}  // namespace ms::health
