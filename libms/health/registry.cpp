// The one list of checks. The rows themselves stand beside their functions: registry_gpu.cpp, registry_host.cpp and,
// for the active checks of the room diag, registry_active.cpp.
#include <algorithm>

#include "health/checks.h"

namespace ms::health {

const std::vector<Check>& all_checks() {
  static const std::vector<Check> kAll = [] {
    std::vector<Check> all;
    for (const std::vector<Check>* rows : {&gpu_checks(), &host_checks(), &active_check_rows()}) {
      all.insert(all.end(), rows->begin(), rows->end());
    }
    return all;
  }();
  return kAll;
}

const Check* find_check(std::string_view code) {
  const std::vector<Check>& all = all_checks();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Check& check) { return check.code == code; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace ms::health
