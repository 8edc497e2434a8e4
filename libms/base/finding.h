// What a check reports: a value, never an exception. The code is a word with dots, stable for ever
// ("gpu.ecc.uncorrectable"); the object is what was looked at ("n12 gpu 3"); the hint is only what we honestly know.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace ms {

enum class Severity { note, warning, critical };

constexpr std::string_view to_string(Severity severity) {
  switch (severity) {
    case Severity::note:
      return "note";
    case Severity::warning:
      return "warning";
    case Severity::critical:
      return "critical";
  }
  return "critical";
}

struct Finding {
  std::string code;
  Severity severity = Severity::critical;
  Blame blame = Blame::bug;
  std::string object = {};
  std::string message = {};  // what was observed
  std::string hint = {};

  // "critical gpu.ecc.uncorrectable n12 gpu 3: 4 uncorrectable errors (hint: reset the GPU)"
  std::string str() const {
    return fmt::format("{} {} {}: {}{}", to_string(severity), code, object, message,
                       hint.empty() ? "" : fmt::format(" (hint: {})", hint));
  }
};

}  // namespace ms
