// The door of libms.so, by which ms-diag finds the checks of this room (health/extension.h). What crosses it are plain
// structs and std:: types of the same build; both sides have their own copy of the rooms below, and of their log.
#include "health/extension.h"

#include "base/version.h"
#include "diag/checks.h"

namespace ms::diag {
namespace {

struct Row {
  std::string_view code;
  health::CheckFunction run;
};
constexpr Row kChecks[] = {
    {"perf.memory", check_memory}, {"perf.gemm", check_gemm}, {"perf.bits", check_bits},
    {"perf.nic", check_nic},       {"perf.a2a", check_a2a},   {"perf.reduce", check_reduce},
};

health::CheckFunction find_active(std::string_view code) {
  for (const Row& row : kChecks) {
    if (row.code == code) return row.run;
  }
  return nullptr;
}

}  // namespace
}  // namespace ms::diag

extern "C" const ms::health::Extension* ms_diag_extension() {
  static const ms::health::Extension kExtension{.version = ms::kVersion, .find_active = ms::diag::find_active};
  return &kExtension;
}
