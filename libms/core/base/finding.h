// Finding: the result of a check, a value and never an exception. The code is a dotted word that never changes
// ("gpu.ecc"). The entity is the thing that was checked ("gpu 3"). The remedy is absent unless one is known.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/escape.h"

namespace ms {

enum class Severity { note, warning, critical };

constexpr std::string_view to_string(Severity severity) {
  switch (severity) {
    case Severity::note: return "note";
    case Severity::warning: return "warning";
    case Severity::critical: return "critical";
  }
  return "critical";
}

struct Finding {
  std::string code = {};
  Severity severity = Severity::critical;
  Blame blame = Blame::bug;
  std::string entity = {};
  std::string message = {};  // what was observed
  std::optional<double> measured = {};
  std::optional<double> limit = {};  // what it should have been
  std::string unit = {};             // of both
  std::string remedy = {};

  // One line: "critical gpu.ecc gpu 3: 4 uncorrectable errors since the driver was loaded (remedy: reset the GPU)"
  std::string str() const {
    return safe_line(fmt::format("{} {} {}: {}{}", to_string(severity), code, entity, message,
                                 remedy.empty() ? "" : fmt::format(" (remedy: {})", remedy)));
  }
};

// A finding of a check that fills in the rest itself: its code, blame and remedy.
inline Finding about(std::string entity, Severity severity, std::string message, std::optional<double> measured = {},
                     std::optional<double> limit = {}, std::string unit = {}) {
  return {.severity = severity,
          .entity = std::move(entity),
          .message = std::move(message),
          .measured = measured,
          .limit = limit,
          .unit = std::move(unit)};
}

}  // namespace ms
