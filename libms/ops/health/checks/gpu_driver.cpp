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
  // Where nobody said that there are GPUs for jobs, they may be well, and the library in a place that is not looked at.
  if (!gpus.library_found && !expected.configured && evidence.root().read("/proc/driver/nvidia/version"))
    return judged({{.severity = Severity::warning,
                    .entity = "driver",
                    .message = message + "; the kernel has the driver loaded, so the library may be elsewhere"}});
  return judged({{.severity = Severity::critical, .entity = "driver", .message = message}});
}

}  // namespace

extern constinit const Check kGpuDriver = {
    .code = "gpu.driver",
    .lane = Lane::gpu,
    .summary = "a driver that does not answer although there are GPUs",
    .needs = kNvml,
    .deadline_s = 3,
    .on_hang = Severity::critical,
    .explain =
        "NVIDIA GPUs are on the PCI bus, or gres.conf or the policy expects some, but the driver's library is not "
        "there, cannot be loaded or refuses: the module is not loaded, or the library was updated under a running "
        "driver. The library is libnvidia-ml.so.1 of the first of /usr/lib/x86_64-linux-gnu, "
        "/usr/lib/aarch64-linux-gnu, /usr/lib64 and /usr/local/nvidia/lib64 that has it, or the file that paths.nvml "
        "names. If no such file is there, the kernel has the driver loaded and neither gres.conf nor the policy "
        "expects "
        "GPUs, nothing is known of them, which is a warning only. On a healthy node the first question takes some "
        "hundredths of a second. Without "
        "nvidia-persistenced the driver starts every GPU anew, which can take seconds for each of them and then "
        "looks like a driver that hangs: run the daemon.\n\n"
        "It is not on the default allow-list: where GPUs are expected, a library in another place, or a wrong "
        "paths.nvml, would look the same on every node. A driver that is there and refuses is also found by gpu.count.",
    .remedy = "Run nvidia-smi; load the module, reboot after an update of the driver, or set paths.nvml.",
    .run = check_gpu_driver};

}  // namespace ms::health
