#pragma once

namespace ms {
inline constexpr const char* kVersion = "0.1.0";
inline constexpr const char* kReleaseDate = "November 21, 2026";  // the date on the manual pages
const char* library_version();
}  // namespace ms
