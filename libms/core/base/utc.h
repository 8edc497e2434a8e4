// Times of day in UTC, as files and reports write them: "2026-01-31T12:00:00Z".
#pragma once

#include <optional>
#include <string>

namespace ms {

// Returns the text of a time in seconds since 1970.
std::string utc_text(double wall_s);
// Returns the seconds since 1970; nullopt where the text is not such a time.
std::optional<double> utc_seconds(const std::string& text);

}  // namespace ms
