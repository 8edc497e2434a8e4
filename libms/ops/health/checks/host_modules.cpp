// The check host.modules (check.h): kernel modules that are not loaded.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "health/checks/check.h"

namespace ms::health {
namespace {

Result check_host_modules(Evidence& evidence) {
  const Sysroot& root = evidence.root();
  const std::vector<std::string>& expected = evidence.policy().expect.modules;
  if (expected.empty()) return skipped("expect.modules names none");
  if (root.list("/sys/module").empty()) return skipped("/sys/module cannot be read");
  std::vector<Finding> findings;
  for (const std::string& module : expected) {
    std::string name = module;  // the kernel writes '_' for '-'
    std::replace(name.begin(), name.end(), '-', '_');
    if (root.exists("/sys/module/" + name)) continue;
    findings.push_back(
        {.severity = Severity::warning,
         .entity = module,
         .message = "this kernel module is not loaded",
         .remedy = fmt::format("modprobe {} loads it, or says why not (dmesg). After an update of the kernel "
                               "its package may be missing for the new one.",
                               module)});
  }
  return judged(std::move(findings), plural(expected.size(), "module"));
}

}  // namespace

extern constinit const Check kHostModules = {
    .code = "host.modules",
    .summary = "kernel modules that are not loaded",
    .needs = "/sys/module",
    .explain =
        "Every module of expect.modules must be loaded or built in, such as nvidia_peermem for GPUDirect RDMA, "
        "ib_uverbs, or lustre.",
    .remedy =
        "Load it with modprobe and look in the kernel log for why it was not loaded; after a kernel update, its "
        "package may be missing.",
    .run = check_host_modules};

}  // namespace ms::health
