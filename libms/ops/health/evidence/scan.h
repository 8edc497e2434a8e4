// Reads the kernel's lines strictly, from their beginning. Kernel messages may carry text of a user's: many begin with
// a process name, which gives its owner the first 15 bytes of a line, and others have file names further on. So a line
// only counts when fixed words of ours match past those bytes. Used by the checks that read the kernel's log.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/finding.h"
#include "base/text.h"

namespace ms::health {

class Scan {
 public:
  explicit Scan(std::string_view text) : rest_(text) {}

  std::string_view rest() const { return rest_; }
  bool at_end() const { return rest_.empty(); }

  // Each of these consumes what it finds, and nothing where it finds nothing.
  bool literal(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  bool one_of(const std::vector<std::string_view>& words) {
    return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return literal(word); });
  }
  std::optional<std::uint64_t> number() { return digits("0123456789", 10, 18); }
  std::optional<std::uint64_t> hex() { return digits("0123456789abcdef", 16, 16); }
  // "400" or "2.5": at most one digit behind the point.
  std::optional<double> decimal() {
    const std::string_view before = rest_;
    const auto whole = number();
    const auto tenths = literal(".") ? number() : std::optional<std::uint64_t>(0);
    if (whole && tenths && *tenths <= 9) return static_cast<double>(*whole) + static_cast<double>(*tenths) / 10;
    rest_ = before;
    return std::nullopt;
  }
  // Letters, digits, '-', '_', '.', '#' and ':' as far as they go: names of devices and DIMMs.
  std::string_view name() { return take(is_name_char); }
  std::string_view device() {
    return take([](char c) { return is_name_char(c) && c != ':' && c != '#' && c != '.'; });
  }
  void blanks() {
    take([](char c) { return c == ' '; });
  }

 private:
  static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.' || c == '#' || c == ':';
  }
  template <class Is>
  std::string_view take(Is is) {
    const auto end = std::find_if_not(rest_.begin(), rest_.end(), is);
    const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::optional<std::uint64_t> digits(std::string_view alphabet, std::uint64_t base, std::size_t most) {
    const std::size_t count = std::min(rest_.find_first_not_of(alphabet), rest_.size());
    if (count == 0 || count > most) return std::nullopt;
    std::uint64_t value = 0;
    for (const char c : rest_.substr(0, count)) value = value * base + alphabet.find(c);
    rest_.remove_prefix(count);
    return value;
  }

  std::string_view rest_;
};

// Fixed words of a line of the kernel log, and what they mean. Words of a job's output are slurm::KernelText.
struct KernelText {
  std::string_view text;
  Severity severity;
  std::string_view message;
};

// Gathers what lines say: one finding for equal ones, with how often it was said; the worst first, and not too many.
class LogTally {
 public:
  // remedy: empty for the check's own.
  void add(Severity severity, std::string entity, std::string message, std::string_view remedy = {}) {
    ++counts_[{severity, std::move(entity), std::move(message), std::string(remedy)}];
  }
  std::vector<Finding> findings() const {
    constexpr std::size_t kMost = 16;
    std::vector<Finding> found;
    for (auto it = counts_.rbegin(); it != counts_.rend() && found.size() < kMost; ++it) {
      const auto& [severity, entity, message, remedy] = it->first;
      const double count = static_cast<double>(it->second);
      found.push_back({.severity = severity,
                       .entity = entity,
                       .message = it->second == 1 ? message : fmt::format("{}, {} times", message, it->second),
                       .measured = count,
                       .limit = 0.0,
                       .unit = "lines",
                       .remedy = remedy});
    }
    return found;
  }

 private:
  std::map<std::tuple<Severity, std::string, std::string, std::string>, std::int64_t> counts_;
};

// Text that may hold anything, for a message.
inline std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 40;
  return ms::printable(text, kMost);
}

}  // namespace ms::health
