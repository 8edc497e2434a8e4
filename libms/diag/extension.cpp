// The list of the active checks (level 2), in the order in which ms-diag list shows them, and the function by which
// ms-diag finds them in libms.so (health/commands/extension.h). A check is a file perf_*.cpp, with one line here. It
// loads the node for a few seconds, measures, and judges the number by the policy's section [active]. It runs in a
// lane's process (health/run/runner.h) and need not clean up what ends with that process. Deadlines add up to 115 s.
#include "health/commands/extension.h"

#include "base/version.h"

#define MS_ACTIVE_CHECKS(X) \
  X(kPerfMemory)            \
  X(kPerfGemm)              \
  X(kPerfBits)              \
  X(kPerfNic)               \
  X(kPerfA2a)               \
  X(kPerfReduce)

namespace ms::diag {

#define MS_DECLARE(check) extern const health::Check check;
MS_ACTIVE_CHECKS(MS_DECLARE)

namespace {

const std::vector<health::Check>& active_checks() {
#define MS_ENTRY(check) check,
  static const std::vector<health::Check> kAll = {MS_ACTIVE_CHECKS(MS_ENTRY)};
  return kAll;
}

}  // namespace
}  // namespace ms::diag

extern "C" const ms::health::Extension* ms_diag_extension() {
  static const ms::health::Extension kExtension{.version = ms::kVersion, .checks = ms::diag::active_checks};
  return &kExtension;
}
