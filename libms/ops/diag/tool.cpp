#include "diag/tool.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/subprocess.h"
#include "base/text.h"

namespace ms::diag {

ToolAnswer ask_tool(const std::vector<std::string>& argv, const std::string& key, double deadline_s) {
  constexpr std::size_t kMostWords = 160;
  if (::access(argv.at(0).c_str(), X_OK) != 0) return {.why = fmt::format("there is no {} ({})", argv[0], key)};
  const SubprocessOptions options{.deadline_s = deadline_s, .environment = {{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}};
  SubprocessResult result = run_subprocess(argv, options);
  if (result.timed_out) return {.why = fmt::format("{}: {}", argv[0], result.describe())};
  if (trim(result.out).empty()) {
    const std::string words = plain_text(result.err, kMostWords);
    return {.why = fmt::format("{}: {}", argv[0], words.empty() ? result.describe() : words), .ok = result.ok()};
  }
  return {.out = std::move(result.out), .ok = result.ok()};
}

}  // namespace ms::diag
