#include "tracepp/read/command.h"

#include <fmt/format.h>

#include <optional>

#include "base/clock.h"
#include "base/progress.h"
#include "tracepp/read/formats.h"

namespace ms::tracepp {

Positional paths_argument() {
  return {.name = "PATH",
          .doc = fmt::format("Trace files of ranks, or directories that contain them: {}.", trace_formats_doc()),
          .many = true};
}

RunTrace read_with_progress(const std::vector<std::string>& paths, ReadOptions options) {
  SystemClock clock;
  std::optional<ms::Progress> progress;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    if (!progress) progress.emplace("read", total, "bytes", clock);
    progress->update(done);
  };
  return read_run(paths, options);
}

}  // namespace ms::tracepp
