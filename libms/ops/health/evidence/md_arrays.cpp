#include "health/evidence/md_arrays.h"

#include "base/text.h"
#include "health/evidence/scan.h"

namespace ms::health {

// "md0 : active raid1 sdb1[1](F) sda1[0]", then "      976630464 blocks super 1.2 [2/1] [U_]".
std::optional<std::vector<MdArray>> read_md_arrays(const Sysroot& root) {
  const auto text = root.read("/proc/mdstat");
  if (!text) return std::nullopt;
  std::vector<MdArray> arrays;
  for (const std::string& line : split(*text, '\n')) {
    Scan scan(line);
    const std::string name(scan.device());
    if (name.starts_with("md") && scan.literal(" : ")) {
      arrays.push_back({.name = name});
      continue;
    }
    for (std::size_t at = line.find('['); at != std::string::npos; at = line.find('[', at + 1)) {
      if (arrays.empty() || arrays.back().wanted) break;
      Scan members(std::string_view(line).substr(at + 1));
      const auto wanted = members.number();
      if (!wanted || !members.literal("/")) continue;
      const auto working = members.number();
      if (!working || !members.literal("]")) continue;
      arrays.back().wanted = wanted;
      arrays.back().working = working;
    }
  }
  return arrays;
}

}  // namespace ms::health
