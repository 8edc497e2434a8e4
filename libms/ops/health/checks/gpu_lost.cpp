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
    .summary = "a GPU that the driver can no longer reach",
    .needs = kNvml,
    .blame = Blame::gpu,
    .explain =
        "The driver reports \"GPU is lost\" if a GPU has fallen off the PCI bus (Xid 79 in the kernel log), and other "
        "errors if it lacks power or needs a reset. Programs on the GPU fail, and often hang. Queries rejected for "
        "lack of permission do not count against the GPU.\n\n"
        "On shared nodes, findings on one GPU count at the start of a job only if the GPU belongs to the job. GPUs are "
        "matched by SLURM_JOB_GPUS, which equals the numbering of NVML only if gres.conf lists the devices in order: "
        "nvidia0 first, which has the lowest PCI address. A GPU that is off the bus has no number and counts for every "
        "job.",
    .remedy =
        "Reboot the node when its jobs have ended or are cancelled. If the GPU is still missing, or lost again, check "
        "its seating, power and temperature.",
    .run = check_gpu_lost};

}  // namespace ms::health
