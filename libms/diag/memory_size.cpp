#include "diag/memory_size.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>

namespace ms::diag {
namespace {

constexpr double kFreePart = 0.25;  // of what is free may be taken, by all processes of the node together
constexpr int kTimesCache = 4;
constexpr std::int64_t kLeastArray = 16 << 20;

// "32768K" of sysfs, in bytes.
std::int64_t cache_size(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return 0;
  const char unit = end == text.data() + text.size() ? '\0' : *end;
  return unit == 'K' ? value << 10 : unit == 'M' ? value << 20 : value;
}

bool all_digits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::int64_t last_level_cache_bytes(const Sysroot& root) {
  const std::string cpus = "/sys/devices/system/cpu";
  std::map<std::string, std::int64_t> sizes;  // by the cpus that share it
  for (const std::string& cpu : root.list(cpus)) {
    if (!cpu.starts_with("cpu") || !all_digits(cpu.substr(3))) continue;
    std::int64_t highest = 0, size = 0;
    std::string shared;
    for (const std::string& index : root.list(cpus + "/" + cpu + "/cache")) {
      const std::string directory = cpus + "/" + cpu + "/cache/" + index;
      const std::int64_t level = root.read_int(directory + "/level").value_or(0);
      if (level < highest || level == 0) continue;
      highest = level;
      size = cache_size(root.read(directory + "/size").value_or(""));
      shared = root.read(directory + "/shared_cpu_list").value_or(cpu);
    }
    if (highest > 0) sizes[shared] = size;
  }
  std::int64_t total = 0;
  for (const auto& [shared, size] : sizes) total += size;
  return total;
}

std::optional<std::int64_t> triad_array_bytes(std::int64_t cache_bytes, std::int64_t free_bytes, double part) {
  const auto share_of = [part](double bytes) { return static_cast<std::int64_t>(bytes * part); };
  const std::int64_t most = share_of(kFreePart * static_cast<double>(free_bytes) / 3);
  const std::int64_t least = std::max(kLeastArray, share_of(static_cast<double>(cache_bytes)));
  if (most < least) return std::nullopt;
  return std::min(most, std::max(kLeastArray, share_of(static_cast<double>(kTimesCache * cache_bytes))));
}

}  // namespace ms::diag
