// The check gpu.lost (check.h): the driver reaches every GPU.
#include "health/checks/check.h"
#include "health/checks/gpu_common.h"

namespace ms::health {
namespace {

Result check_gpu_lost(Evidence& evidence) {
  return each_gpu(
      evidence, "state", [](const Gpu& gpu) { return !gpu.denied; },
      [](const Gpu& gpu, std::vector<Finding>& findings) {
        if (gpu.lost) {
          findings.push_back(about(gpu, Severity::critical, "the driver lost it (it has fallen off the bus)"));
        } else if (!gpu.error.empty()) {
          findings.push_back(about(gpu, Severity::critical, "does not answer: " + gpu.error));
        }
      });
}

}  // namespace

extern constinit const Check kGpuLost = {
    .code = "gpu.lost",
    .lane = Lane::gpu,
    .summary = "a GPU that the driver cannot reach any more",
    .needs = kNvml,
    .blame = Blame::gpu,
    .explain =
        "The driver answers \"GPU is lost\" when a GPU has fallen off the PCI bus (Xid 79 in the kernel's log), and "
        "other errors when it lacks power or cannot be used before a reset. Programs that use the GPU fail, and "
        "often hang. Questions that are refused for lack of permission do not count against the GPU.\n\n"
        "On nodes that jobs share, this and the other findings of one GPU count at a job's start only if the GPU is "
        "the job's. GPUs are matched by the number that Slurm gives (SLURM_JOB_GPUS), which is NVML's only where "
        "gres.conf lists the devices in order: nvidia0 first, which is the lowest PCI address. A GPU that is off "
        "the bus has no number any more, and counts for every job.",
    .remedy =
        "Reboot the node when its jobs have ended or are cancelled; if the GPU is still missing, or lost again, check "
        "its seat, its power and its temperature.",
    .run = check_gpu_lost};

}  // namespace ms::health
