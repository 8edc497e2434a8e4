// The list of the active checks (levels 2 and 3), in the order in which ms-diag list shows them and in which they
// begin, and the function by which ms-diag finds them in libms.so (health/commands/extension.h). A check is a file
// named by its code, with one line here. It loads what its row says that it takes, measures, and judges the number by
// the policy's section [active], or by limits.txt. It runs in a process of its own (health/run/runner.h) and need not
// clean up what ends with that process.
#include "health/commands/extension.h"

#include "base/version.h"
#include "predict/command.h"

#define MS_ACTIVE_CHECKS(X) \
  X(kEnvCuda)               \
  X(kHostBmc)               \
  X(kDiskSmart)             \
  X(kSlurmNode)             \
  X(kPerfGpu)               \
  X(kPerfGpubits)           \
  X(kPerfGpucopy)           \
  X(kPerfNccl)              \
  X(kPerfNcclnet)           \
  X(kPerfRdma)              \
  X(kPerfRnics)             \
  X(kPerfMemory)            \
  X(kPerfGemm)              \
  X(kPerfBits)              \
  X(kPerfNic)               \
  X(kPerfA2a)               \
  X(kPerfProcs)             \
  X(kPerfReduce)            \
  X(kPerfDisk)              \
  X(kGpuDcgm)               \
  X(kSoakGpu)               \
  X(kSoakHbm)               \
  X(kSoakCpu)               \
  X(kSoakMemory)            \
  X(kSoakTrain)

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
  static const ms::health::Extension kExtension{
      .version = ms::kVersion, .checks = ms::diag::active_checks, .predict = ms::predict::run_command};
  return &kExtension;
}
