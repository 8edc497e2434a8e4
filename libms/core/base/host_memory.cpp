#include "base/host_memory.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "base/text.h"

namespace ms {
namespace {

// Names of a control group's files. Version 1 counts what lies below a group only in values that are called total.
struct GroupFiles {
  const char *limit, *usage, *file_cache_prefix;
};
constexpr std::array<GroupFiles, 2> kGroupFiles{
    {{"/memory.max", "/memory.current", ""}, {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_"}}};

// Returns the value of a line "KEY VALUE ..."; 0 where there is none, or it is no number.
std::int64_t value_of(const std::string& text, const std::string& key) {
  for (const std::string& line : split(text, '\n')) {
    if (line.starts_with(key + " ") || line.starts_with(key + "\t"))
      return std::strtoll(line.c_str() + key.size(), nullptr, 10);
  }
  return 0;
}

// Lowers both by a control group's limit. Pages of files count as used, but the kernel frees them before it refuses
// any.
void apply_group(const Sysroot& root, const std::string& directory, HostMemory& memory) {
  for (const GroupFiles& files : kGroupFiles) {
    const auto limit = root.read_int(directory + files.limit), usage = root.read_int(directory + files.usage);
    if (!limit || !usage) continue;  // "max", or no such group
    const std::string stat = root.read(directory + "/memory.stat").value_or(""), prefix = files.file_cache_prefix;
    const std::int64_t cache = value_of(stat, prefix + "active_file") + value_of(stat, prefix + "inactive_file");
    memory.total_bytes = std::min(memory.total_bytes, *limit);
    memory.free_bytes = std::min(memory.free_bytes, std::clamp<std::int64_t>(*limit - *usage + cache, 0, *limit));
    return;
  }
}

void add_limits(const Sysroot& root, HostMemory& memory) {
  constexpr std::int64_t kStackWithoutLimit = 2 << 20;  // glibc's
  const std::string limits = root.read("/proc/self/limits").value_or("");
  const std::int64_t stack = value_of(limits, "Max stack size");
  memory.stack_bytes = stack > 0 ? stack : kStackWithoutLimit;
  const std::int64_t space = value_of(limits, "Max address space");
  const std::int64_t used = value_of(root.read("/proc/self/status").value_or(""), "VmSize:") << 10;
  if (space > 0 && used > 0) memory.address_bytes = std::max<std::int64_t>(0, space - used);
}

}  // namespace

HostMemory host_memory(const Sysroot& root) {
  const std::string meminfo = root.read("/proc/meminfo").value_or("");
  HostMemory memory{.total_bytes = value_of(meminfo, "MemTotal:") << 10,
                    .free_bytes = value_of(meminfo, "MemAvailable:") << 10};
  memory.machine_bytes = memory.total_bytes;
  for (const std::string& line : split(root.read("/proc/self/cgroup").value_or(""), '\n')) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "memory") continue;
    const std::string base = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (std::string group = line.substr(second + 1); group.size() > 1 && group.find("..") == std::string::npos;
         group.resize(group.rfind('/'))) {
      apply_group(root, base + group, memory);
    }
    apply_group(root, base, memory);
  }
  add_limits(root, memory);
  return memory;
}

}  // namespace ms
