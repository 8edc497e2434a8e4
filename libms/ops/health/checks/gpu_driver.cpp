// The check gpu.driver (check.h): the driver of NVIDIA's GPUs answers. It is the first of its lane and so pays for the
// start of NVML, whose answers the others of the lane then share.
#include "health/checks/check.h"
#include "health/checks/gpu_common.h"

namespace ms::health {
namespace {

Result check_gpu_driver(Evidence& evidence) {
  const std::size_t on_bus = gpus_on_bus(evidence.root()).size();
  const Expected expected = expected_gpus(evidence);
  if (evidence.policy().expect.gpus == 0) return skipped("expect.gpus is 0");
  if (on_bus == 0 && expected.count == 0) return skipped("no NVIDIA GPU here and none is expected");
  const GpuSnapshot& gpus = evidence.gpus();
  if (gpus.error.empty()) return passed("driver " + gpus.driver_version);
  if (on_bus == 0 && !gpus.library_found) {
    return skipped(fmt::format("{}, and the PCI bus has no NVIDIA GPU", gpus.error));
  }
  const std::string message =
      fmt::format("no answer about {}: {}", plural(std::max(on_bus, expected.count), "GPU"), gpus.error);
  // If no configuration says that jobs use GPUs, they may be well, and the library in a place that is not looked at.
  if (!gpus.library_found && !expected.configured && evidence.root().read("/proc/driver/nvidia/version"))
    return judged({about("driver", Severity::warning,
                         message + "; the kernel has the driver loaded, so the library may be elsewhere")});
  return judged({about("driver", Severity::critical, message)});
}

}  // namespace

extern constinit const Check kGpuDriver = {
    .code = "gpu.driver",
    .lane = Lane::gpu,
    .summary = "a driver that does not respond although there are GPUs",
    .needs = kNvml,
    .deadline_s = 3,
    .on_hang = Severity::critical,
    .explain =
        "NVIDIA GPUs are on the PCI bus, or gres.conf or the policy expects some, but the driver's library is missing, "
        "cannot be loaded or returns an error: the module is not loaded, or the library was updated under a running "
        "driver. The library is the file named by paths.nvml, or the first libnvidia-ml.so.1 in "
        "/usr/lib/x86_64-linux-gnu, /usr/lib/aarch64-linux-gnu, /usr/lib64 and /usr/local/nvidia/lib64. If the library "
        "is missing, the kernel has loaded the driver, and neither gres.conf nor the policy expects GPUs, it is only a "
        "warning. On a healthy node the first query takes some hundredths of a second. Without nvidia-persistenced the "
        "driver initializes every GPU again, which can take seconds per GPU and looks like a hang: run the daemon.\n\n"
        "It is not in the default act.allow: where GPUs are expected, a library in another place, or a wrong "
        "paths.nvml, would drain every node. gpu.count also finds a driver that is present but returns errors.",
    .remedy = "Run nvidia-smi; load the module, reboot after an update of the driver, or set paths.nvml.",
    .run = check_gpu_driver};

}  // namespace ms::health
