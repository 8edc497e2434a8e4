#include "trace/metrics_file.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/user_path.h"

namespace ms::trace {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw Error("file.write", Blame::storage, fmt::format("{} {}: {}", what, path, errno_text(errno)));
}

// Returns the step of a line that write() wrote, nullopt for any other text.
std::optional<std::int64_t> step_of(std::string_view line) {
  constexpr std::string_view kStart = R"({"step":)";
  if (!line.starts_with(kStart) || !line.ends_with("}")) return std::nullopt;
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(line.data() + kStart.size(), line.data() + line.size(), step);
  if (error != std::errc() || *end != ',') return std::nullopt;
  return step;
}

// Returns the lines of steps up to `last_step`, each step once; drops an incomplete line.
std::string lines_up_to(std::int64_t last_step, std::string_view text) {
  std::string kept;
  std::int64_t last = 0;
  for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    const std::optional<std::int64_t> step = step_of(text.substr(0, end));
    if (!step || *step <= last || *step > last_step) continue;
    kept += text.substr(0, end + 1);
    last = *step;
  }
  return kept;
}

// Keeps the lines of an earlier run, and returns the path.
const std::string& set_aside(const std::string& path, std::int64_t resumed) {
  const std::string previous = path + ".previous";
  if (resumed > 0 && access(path.c_str(), F_OK) == 0) {
    // In this order, a kill at any moment leaves all lines in one of the two files.
    const std::string kept = lines_up_to(resumed, read_user_file(path, std::numeric_limits<std::size_t>::max()));
    unlink(previous.c_str());
    if (link(path.c_str(), previous.c_str()) != 0) fail(path, "cannot keep a copy of");
    write_file_atomic(path, kept);
  } else if (std::rename(path.c_str(), previous.c_str()) != 0 && errno != ENOENT) {
    fail(path, "cannot set aside");
  }
  return path;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::int64_t resumed) : file_(set_aside(path, resumed)) {}

}  // namespace ms::trace
