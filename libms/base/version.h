#pragma once

namespace ms {
inline constexpr const char* kVersion = "0.1.0";
const char* library_version();
}  // namespace ms
