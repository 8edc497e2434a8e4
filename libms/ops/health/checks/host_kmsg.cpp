// The check host.kmsg (check.h): error lines of the kernel that the site does not know.
#include <fnmatch.h>

#include <algorithm>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr int kErrorLevel = 3;  // KERN_ERR; emergencies have 0

Result check_host_kmsg(Evidence& evidence) {
  const std::vector<std::string>& known = evidence.policy().expect.kernel_lines;
  if (known.empty()) return skipped("expect.kernel_lines names none");
  const KernelLog& log = evidence.kernel_log();
  if (!log.error.empty()) return skipped(log.error);
  LogTally tally;
  std::size_t errors = 0, of_others = 0;
  for (const KernelLine& line : log.lines) {
    if (line.level > kErrorLevel) continue;
    ++errors;
    if (evidence.is_judged(line)) {
      ++of_others;
      continue;
    }
    const bool is_known = std::ranges::any_of(
        known, [&](const std::string& pattern) { return fnmatch(pattern.c_str(), line.text.c_str(), 0) == 0; });
    if (!is_known) tally.add(Severity::warning, "kernel", "said " + ms::printable(line.text, 120));
  }
  return judged(tally.findings(), plural(errors, "error line") +
                                      (of_others == 0 ? ", all known"
                                                      : fmt::format(", {} of them in findings of other checks, the "
                                                                    "others known",
                                                                    of_others)));
}

}  // namespace

extern constinit const Check kHostKmsg = {
    .code = "host.kmsg",
    .lane = Lane::kernel,
    .summary = "unknown error lines in the kernel log",
    .needs = "/dev/kmsg and expect.kernel_lines",
    .user_can_cause = true,
    .explain =
        "Every line that the kernel logged with level error or higher must match a pattern of expect.kernel_lines, "
        "which lists lines that are harmless on this hardware, one pattern per line, as in *ACPI BIOS Error*. Other "
        "lines are a warning; similar lines are counted together. Lines reported by another check of the same run are "
        "not repeated. The check finds faults that no other check knows, but the site must maintain the list.",
    .remedy =
        "No other check reported this line: look it up, and read the lines around it (dmesg -T). Add to "
        "expect.kernel_lines only lines that are harmless on this hardware.",
    .run = check_host_kmsg};

}  // namespace ms::health
