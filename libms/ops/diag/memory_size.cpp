#include "diag/memory_size.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/host_memory.h"
#include "base/number.h"
#include "base/text.h"

namespace ms::diag {
namespace {

constexpr double kFreePart = 0.25;  // of what is free may be taken, by all processes of the node together
constexpr int kTimesCache = 4;
constexpr std::int64_t kLeastArray = 16 << 20;
constexpr std::int64_t kFirstArray = 1 << 20;

// The most last-level cache that a core of a socket has: 96 MiB where all others of its cache are switched off, and
// about 16 MiB of the models that clouds rent out.
constexpr std::int64_t kCore = 96 << 20;
constexpr std::int64_t kVirtualCore = 16 << 20;
constexpr std::int64_t kMemoryToCache = 64;  // a whole machine has at least so much more memory than cache

// "32768K" of sysfs, in bytes.
std::int64_t cache_size(std::string_view text) {
  const std::int64_t value = take_number<std::int64_t>(text).value_or(0);
  return text.starts_with('K') ? value << 10 : text.starts_with('M') ? value << 20 : value;
}

bool all_digits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string Caches::note() const {
  if (!is_slice()) return {};
  return fmt::format(
      ", {} of the reported {} of cache counted: the others are of cores that this machine does not have",
      format_size(static_cast<double>(counted_bytes)), format_size(static_cast<double>(reported_bytes)));
}

bool is_virtual(const Sysroot& root) {
  for (const std::string& line : split(root.read("/proc/cpuinfo", 1 << 14).value_or(""), '\n')) {
    if (line.starts_with("flags")) return (line + " ").find(" hypervisor ") != std::string::npos;
  }
  return false;
}

Caches last_level_caches(const Sysroot& root) {
  struct Cache {
    std::int64_t bytes = 0, cores = 0;
  };
  const std::string cpus = "/sys/devices/system/cpu";
  std::map<std::string, Cache> caches;  // by the cpus that share it
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
    if (highest == 0) continue;
    caches[shared].bytes = std::max(caches[shared].bytes, size);
    ++caches[shared].cores;
  }
  const std::int64_t core_bytes = is_virtual(root) ? kVirtualCore : kCore;
  Caches total;
  for (const auto& [shared, cache] : caches) {
    total.reported_bytes += cache.bytes;
    total.counted_bytes += std::min(cache.bytes, cache.cores * core_bytes);
  }
  const std::int64_t memory_bytes = host_memory(root).machine_bytes;
  if (memory_bytes > 0) total.counted_bytes = std::min(total.counted_bytes, memory_bytes / kMemoryToCache);
  return total;
}

std::optional<Work> triad_work(std::int64_t cache_bytes, std::int64_t free_bytes, double part) {
  const auto share_of = [part](double bytes) { return static_cast<std::int64_t>(bytes * part); };
  const std::int64_t most = share_of(kFreePart * static_cast<double>(free_bytes) / 3);
  const std::int64_t least = std::max(kLeastArray, share_of(static_cast<double>(cache_bytes)));
  if (most < least) return std::nullopt;
  return Work{.first = kFirstArray,
              .least = least,
              .most = std::min(most, std::max(kLeastArray, share_of(static_cast<double>(kTimesCache * cache_bytes)))),
              .fresh = 2,  // pages are touched first
              .seconds = 1.5,
              .rounds = 3,
              .most_rounds = 1 << 15,
              .tail = 1};  // every element is verified
}

}  // namespace ms::diag
