#include "diag/limits.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "base/html.h"
#include "base/sysroot.h"
#include "base/text.h"

namespace ms {
extern const PagePart kDiagLimits;  // limits.txt
}

namespace ms::diag {

const std::vector<KnownLimit>& known_limits() {
  static const std::vector<KnownLimit> kAll = [] {
    std::vector<KnownLimit> all;
    for (const std::string& line : split(kDiagLimits.text, '\n')) {
      if (line.empty() || line.starts_with('#')) continue;
      const std::vector<std::string> words = split(line, '|');
      MS_ASSERT(words.size() == 4 || words.size() == 5, "limits.txt: {}", line);
      all.push_back({words[0], words[1], std::strtod(words[2].c_str(), nullptr), words[3],
                     words.size() == 5 ? std::atoi(words[4].c_str()) : 0});
    }
    return all;
  }();
  return kAll;
}

KnownLimit known_limit(std::string_view model, std::string_view what) {
  KnownLimit best;
  for (const KnownLimit& limit : known_limits()) {
    const bool fits = limit.what == what && model.find(limit.model) != std::string_view::npos;
    if (fits && limit.model.size() > best.model.size()) best = limit;
  }
  return best;
}

std::string cpu_model(const Sysroot& root) {
  for (const std::string& line : split(root.read("/proc/cpuinfo", 1 << 14).value_or(""), '\n')) {
    if (line.starts_with("model name")) return std::string(trim(line.substr(line.find(':') + 1)));
  }
  return {};
}

int num_sockets(const Sysroot& root) {
  std::set<std::int64_t> sockets;
  for (const std::string& cpu : root.list("/sys/devices/system/cpu")) {
    const auto id = root.read_int("/sys/devices/system/cpu/" + cpu + "/topology/physical_package_id");
    if (id) sockets.insert(*id);
  }
  return std::max(1, static_cast<int>(sockets.size()));
}

}  // namespace ms::diag
