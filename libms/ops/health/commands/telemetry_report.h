// Samples and their trends, for people and programs. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "health/telemetry/sample.h"
#include "health/telemetry/series.h"
#include "health/telemetry/trends.h"

namespace ms::health {

// One line a value, those of a device together.
std::string sample_text(const Sample& sample);
// {"schema":1,"node","time","devices":[{"device","facts":{..},"values":{COLUMN:n}}],"missing":[..]}
std::string sample_json(const std::string& node, const Sample& sample);

inline constexpr std::string_view kSamplesTitle = "time,node,device,metric,value\n";
std::string samples_csv(const Series& series);  // a line each value that is known

std::string trends_text(const SiteTrends& trends);
Json trends_json(const SiteTrends& trends);

}  // namespace ms::health
