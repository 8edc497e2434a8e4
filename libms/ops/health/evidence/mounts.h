// The node's mounts: what is mounted, what /etc/fstab says, and what the site expects.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/sysroot.h"
#include "health/evidence/evidence.h"

namespace ms::health {

struct Mount {
  std::string path;
  std::string type;                   // "nfs4"
  std::string source;                 // "server:/export", "/dev/sda1"
  std::string device;                 // "0:51", as major:minor
  bool read_only = false;             // this mount
  bool filesystem_read_only = false;  // the file system itself, for every mount of it
  std::vector<std::string> options;   // of both, sorted, each once
};

// Parses /proc/self/mountinfo, in its order; malformed lines are left out. Pure.
std::vector<Mount> parse_mountinfo(std::string_view text);

// The mount at this path: the last one, which hides those before it. nullptr: there is none.
const Mount* mounted_at(const std::vector<Mount>& mounts, std::string_view path);

std::string without_slash(std::string path);  // without those at its end

// An entry of expect.mounts: "/scratch", "/scratch:rw", "/images:ro".
enum class Access { any, writable, read_only };
struct ExpectedMount {
  std::string path;
  Access access = Access::any;
};
std::vector<ExpectedMount> required_mounts(const Evidence& evidence);

// The paths of expect.mounts.
std::vector<std::string> expected_mounts(const Evidence& evidence);

struct FstabLine {
  std::string source;  // "server:/export"
  std::string path;
  std::string type;
  std::vector<std::string> options;
};

// The lines of /etc/fstab that name a mount point.
std::vector<FstabLine> read_fstab(const Sysroot& root);

template <class List>
bool contains(const List& list, std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

}  // namespace ms::health
