#include "tracepp/read/run_metrics.h"

#include <filesystem>

#include "base/user_path.h"

namespace ms::tracepp {

std::string metrics_of_run(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path directory = (std::filesystem::path(path) / "").parent_path();  // without a slash at its end
  if (directory.filename() == "trace") directory = directory.parent_path();
  const std::filesystem::path file = directory / "metrics.jsonl";
  return std::filesystem::is_regular_file(file, ignored) ? file.string() : "";
}

std::optional<trace::ExpertLoads> newest_expert_loads(const std::string& run) {
  constexpr std::size_t kMostBytes = std::size_t{16} << 20;  // of the file's end: many lines with loads
  const std::string path = metrics_of_run(run);
  if (path.empty()) return {};
  return trace::last_expert_loads(read_user_file_end(path, kMostBytes));
}

}  // namespace ms::tracepp
