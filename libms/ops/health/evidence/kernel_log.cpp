// /dev/kmsg: a record a read, and EAGAIN at the end, so that reading never waits. What a record says is trusted only as
// far as the kernel wrote it: programs' records and fragments of lines (pr_cont) are left out, and the kernel escapes
// line ends inside a text, so no text can begin a line of its own.
#include "health/evidence/kernel_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "base/handle.h"
#include "base/number.h"

namespace ms::health {
namespace {

constexpr std::size_t kMaxRecordBytes = 16384;  // the kernel's own bound is 8 KiB
constexpr std::size_t kMaxLogBytes = 64 << 20;  // a log that grows while it is read ends here
constexpr int kKernelFacility = 0;

// Takes the number at the front and the separator behind it.
template <class Number>
bool take(std::string_view& text, Number& number, char separator) {
  const auto taken = take_number<Number>(text);
  if (!taken || !text.starts_with(separator)) return false;
  number = *taken;
  text.remove_prefix(1);
  return true;
}

// One line of the records: "priority,sequence,microseconds,flags[,more];text".
std::optional<KernelLine> parse_record(std::string_view line) {
  std::uint32_t priority = 0;
  std::uint64_t sequence = 0;
  std::uint64_t time_us = 0;
  if (!take(line, priority, ',') || !take(line, sequence, ',') || !take(line, time_us, ',')) return std::nullopt;
  const std::size_t text = line.find(';');
  if (text == std::string_view::npos || text == 0 || line.front() != '-') return std::nullopt;
  if (priority >> 3 != kKernelFacility) return std::nullopt;
  return KernelLine{.since_boot_s = static_cast<double>(time_us) * 1e-6,
                    .level = static_cast<int>(priority & 7),
                    .text = std::string(line.substr(text + 1))};
}

void append_since(std::vector<KernelLine>& lines, std::string_view records, double not_before_s) {
  for (KernelLine& line : parse_kernel_log(records)) {
    if (line.since_boot_s >= not_before_s) lines.push_back(std::move(line));
  }
}

}  // namespace

std::vector<KernelLine> parse_kernel_log(std::string_view records) {
  std::vector<KernelLine> lines;
  while (!records.empty()) {
    const std::size_t end = std::min(records.find('\n'), records.size());
    if (std::optional<KernelLine> line = parse_record(records.substr(0, end))) lines.push_back(std::move(*line));
    records.remove_prefix(std::min(end + 1, records.size()));
  }
  return lines;
}

KernelLog read_kernel_log(const Sysroot& root, double not_before_s) {
  KernelLog log;
  if (!root.is_real()) {
    if (const std::optional<std::string> records = root.read("/dev/kmsg", kMaxLogBytes)) {
      append_since(log.lines, *records, not_before_s);
    } else {
      log.error = "there is no readable " + root.path("/dev/kmsg");
    }
    return log;
  }
  const UniqueFd fd(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd) {
    log.error = "cannot open /dev/kmsg: " + errno_text(errno);
    return log;
  }
  std::array<char, kMaxRecordBytes> record{};
  for (std::size_t total = 0; total < kMaxLogBytes;) {
    const ssize_t got = ::read(fd.get(), record.data(), record.size());
    if (got < 0 && (errno == EINTR || errno == EPIPE || errno == EINVAL)) {
      ++total;  // EPIPE: overwritten while we read, the next read goes on with the oldest that is left
      continue;
    }
    if (got < 0 && errno != EAGAIN) log.error = "cannot read /dev/kmsg: " + errno_text(errno);
    if (got <= 0) break;
    append_since(log.lines, std::string_view(record.data(), static_cast<std::size_t>(got)), not_before_s);
    total += static_cast<std::size_t>(got);
  }
  return log;
}

}  // namespace ms::health
