// The software RAID arrays (md) of the node, by /proc/mdstat.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/sysroot.h"

namespace ms::health {

struct MdArray {
  std::string name;                                        // "md0"
  std::optional<std::uint64_t> wanted = {}, working = {};  // members; nullopt: of a level without redundancy
};

// nullopt: there is no /proc/mdstat.
std::optional<std::vector<MdArray>> read_md_arrays(const Sysroot& root);

}  // namespace ms::health
