#include "health/commands/extension.h"

#include "base/library.h"
#include "base/print.h"
#include "health/checks/registry.h"

namespace ms::health {
namespace {

constexpr Library kActive{"libms.so", "ms_diag_extension",
                          "checks of level 2 and predict are in libms.so, which is installed with ms-diag"};
constexpr Library kNotify{"libms_notify.so", "ms_notify_extension",
                          "notify is in libms_notify.so, which is installed with ms-diag if ms was built with libcurl"};

}  // namespace

const Extension& load_extension() {
  static const Extension& extension = load_library<Extension>(kActive);  // for the life of the process
  return extension;
}

const NotifyExtension& load_notify_extension() {
  static const NotifyExtension& extension = load_library<NotifyExtension>(kNotify);
  return extension;
}

std::vector<Check> all_checks() {
  std::vector<Check> all = passive_checks();
  const std::vector<Check>& active = load_extension().checks();
  all.insert(all.end(), active.begin(), active.end());
  return all;
}

std::vector<Check> known_checks() {
  try {
    return all_checks();
  } catch (const Error& error) {  // the passive checks need no library
    print_err("ms-diag: note: only the passive checks are known: {}\n", error.what());
    return passive_checks();
  }
}

}  // namespace ms::health
