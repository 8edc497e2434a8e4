// How fast a counter grows, across runs: a check keeps the counter's value with its time (Result::counters) and finds
// it again in the next run. The window only moves on when it is full, so that frequent runs do not hide slow growth
// and one event seconds after the last run is not taken for thousands an hour.
#pragma once

#include <optional>
#include <string>

#include "health/evidence/evidence.h"

namespace ms::health {

inline constexpr double kHour_s = 3600;
inline constexpr double kDay_s = 86400;

// Growth per window since the kept value; over at least a whole window, so a partly filled one gives what was counted
// in it. nullopt where there is no earlier value, or the counter or the clock went backwards. What is to be kept for
// the next run goes into `keep`.
std::optional<double> growth_per_window(const Evidence& evidence, const std::string& name, double value,
                                        double window_s, Counters& keep);

}  // namespace ms::health
