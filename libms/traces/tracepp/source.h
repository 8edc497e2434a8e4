// The recorders whose traces are read, one row each: what a recorder can tell decides what an analysis may conclude.
#pragma once

#include <string_view>

namespace ms::tracepp {

struct Source {
  std::string_view name;  // as `ms-tracepp info` prints it
  // It signs its file every second until the end, writes a file for every rank, and records all operations of a
  // section.
  bool signs_life = false;
  bool is_dump = false;  // of the newest operations at one moment; steps are not known
  // It records the operations of a pipeline with the model's own names, and nothing of the host.
  bool is_pipeline = false;
  bool knows_idle = true;        // time without an operation is idle; false: it may be work that is not recorded
  bool continues_files = false;  // further files of a rank continue the first; false: they replace it
};

inline constexpr Source kUnknownSource{.name = ""};
inline constexpr Source kOwnSource{.name = "ms-trace", .signs_life = true};
inline constexpr Source kKineto{.name = "kineto"};
inline constexpr Source kChromeTrace{.name = "chrome"};
inline constexpr Source kNsight{.name = "nsight systems"};
inline constexpr Source kFlightRecorder{.name = "flight recorder", .is_dump = true};
inline constexpr Source kWatchdogLog{.name = "lines of PyTorch's watchdog", .is_dump = true};
inline constexpr Source kNdtimeline{.name = "ndtimeline", .is_pipeline = true, .continues_files = true};
inline constexpr Source kStragglerAnalysis{.name = "straggler analysis", .is_pipeline = true, .knows_idle = false};

}  // namespace ms::tracepp
