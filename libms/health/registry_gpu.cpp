// The rows of the checks of NVIDIA GPUs. The texts are ms-checks(7). gpu.driver comes first: it pays for the start of
// NVML, whose answers the others of its lane then share.
#include "health/checks.h"

namespace ms::health {
namespace {

constexpr std::string_view kNvml = "NVML (paths.nvml)";

std::vector<Check> rows_of_gpus() {
  return {
      {.code = "gpu.driver",
       .lane = Lane::gpu,
       .summary = "a driver that does not answer although there are GPUs",
       .needs = kNvml,
       .deadline_s = 3,
       .on_hang = Severity::critical,
       .explain =
           "NVIDIA GPUs are on the PCI bus, or gres.conf or the policy expects some, but the driver's library is not "
           "there, cannot be loaded or refuses: the module is not loaded, or the library was updated under a running "
           "driver. The library is libnvidia-ml.so.1 of the first of /usr/lib/x86_64-linux-gnu, "
           "/usr/lib/aarch64-linux-gnu and /usr/lib64 that has it, or the file that paths.nvml names. On a healthy "
           "node the first question takes some hundredths of a second. Without "
           "nvidia-persistenced the driver starts every GPU anew, which can take seconds for each of them and then "
           "looks like a driver that hangs: run the daemon.\n\n"
           "It is not on the default allow-list, because a library in another place, or a wrong paths.nvml, "
           "would look the same on every node. A driver that is there and refuses is also found by gpu.count.",
       .remedy = "Run nvidia-smi; load the module, reboot after an update of the driver, or set paths.nvml.",
       .run = check_gpu_driver},
      {.code = "gpu.count",
       .lane = Lane::gpu,
       .summary = "GPUs that are missing",
       .needs = kNvml,
       .explain =
           "Compares the number of GPUs that the driver names with expect.gpus of the policy; where that is not set, "
           "with the /dev/nvidiaN devices that gres.conf gives this node; and without those with the NVIDIA display "
           "controllers on the PCI bus. Fewer is critical: Slurm would give jobs a GPU that is not there. A GPU that "
           "the driver lost while it ran is still counted here and found by gpu.lost. Without the library nothing "
           "is compared; that is gpu.driver's finding.",
       .remedy = "Look for the missing GPU with lspci and in the kernel's log; boot the node, then reseat the GPU.",
       .run = check_gpu_count},
      {.code = "gpu.lost",
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
       .remedy = "Boot the node; if the GPU is lost again, check its seat, its power and its temperature.",
       .run = check_gpu_lost},
      {.code = "gpu.ecc",
       .lane = Lane::gpu,
       .summary = "memory errors of a GPU",
       .needs = kNvml,
       .blame = Blame::gpu,
       .explain =
           "Reads the volatile ECC counters, which begin at zero when the driver is loaded or the GPU is reset. One "
           "uncorrectable error is critical: data was lost, the program that had it was ended, and the damaged row "
           "is only replaced by a reset. Corrected errors are the memory doing its work; more than "
           "limits.ecc_correctable of them are a warning.",
       .remedy =
           "Reset the GPU (nvidia-smi --gpu-reset) or boot the node, which remaps the row and clears the counter.",
       .run = check_gpu_ecc},
      {.code = "gpu.remap",
       .lane = Lane::gpu,
       .summary = "memory rows that wait to be remapped, or cannot be",
       .needs = kNvml,
       .blame = Blame::gpu,
       .explain =
           "From Ampere on, GPUs replace damaged rows of their memory by spare ones at the next reset; older ones "
           "retire the page. What is pending is a warning: the driver already keeps programs off the damaged place, "
           "but a part of the memory is missing until the reset. That no spare row is left is critical; NVIDIA takes "
           "the failure flag, confirmed by its field diagnostic, as a reason for replacement.",
       .remedy = "Reset the GPU when no job uses it.",
       .run = check_gpu_remap},
      {.code = "gpu.recovery",
       .lane = Lane::gpu,
       .summary = "the recovery that the driver asks for",
       .needs = "NVML of driver 570 or later",
       .blame = Blame::gpu,
       .explain =
           "Drivers from 570 on say themselves what a GPU needs: nothing, a reset, a reboot of the node, an end of "
           "peer-to-peer traffic, or that and a reset. Everything but the end of peer-to-peer traffic alone, which is "
           "a warning, is critical. Older drivers do not say; the check is then skipped.",
       .remedy = "Do what the driver asks for when no job uses the GPU.",
       .run = check_gpu_recovery},
      {.code = "gpu.xid",
       .lane = Lane::kernel,
       .summary = "Xids in the kernel's log that speak against a GPU",
       .needs = "/dev/kmsg",
       .blame = Blame::gpu,
       .explain =
           "The driver writes an Xid into the kernel's log when something goes wrong on a GPU. Those that mean broken "
           "hardware or a GPU that must be reset are critical (48, 54, 62, 64, 79, 95, 119, 120, 140, 143, 158), those "
           "that need a person's look are warnings (46, 74, 94, 144 to 150 and others). Xid 154 is judged by the "
           "action that its text asks for, and the last one of a GPU counts.\n\n"
           "What a program can cause by itself never counts: 13, 31, 43, 45, 109 and the like. Only lines of the "
           "kernel itself count, from their first character on, and none from before the node's boot or its last "
           "undrain: after a reset of the GPU, undrain the node.",
       .remedy = "Look the number up in NVIDIA's Xid catalog; reset the GPU, or boot the node after Xid 79.",
       .run = check_gpu_xid},
      {.code = "gpu.pcie",
       .lane = Lane::gpu,
       .summary = "a PCIe link that lost lanes",
       .needs = kNvml,
       .blame = Blame::gpu,
       .explain =
           "Compares the width of the link with the most that GPU and slot can do together. Half of the lanes or "
           "fewer is critical: copies to the GPU take twice as long, and every other GPU of a job waits. The link's "
           "speed is not looked at, because GPUs lower it when they are idle.",
       .remedy = "Reseat the GPU or its riser; if that does not help, try another slot to tell which of them is bad.",
       .run = check_gpu_pcie},
      {.code = "gpu.nvlink",
       .lane = Lane::gpu,
       .summary = "NVLinks that are down",
       .needs = kNvml,
       .blame = Blame::gpu,
       .explain =
           "Counts the NVLinks of every GPU that are active. Fewer than expect.nvlinks_per_gpu is critical; where that "
           "is not set, so is fewer than on the other GPUs of the node. If all are alike, some boards use only a part "
           "of their links, so that is a warning; and where no link is active on any GPU there may be no bridge, and "
           "the check is skipped. Set the expectation on machines with NVSwitch, where a fabric manager that does "
           "not run leaves all links down.",
       .remedy = "Check that nvidia-fabricmanager runs; then reset the GPUs, and look at nvidia-smi nvlink -e.",
       .run = check_gpu_nvlink},
      {.code = "gpu.thermal",
       .lane = Lane::gpu,
       .summary = "a GPU that the hardware slows down",
       .needs = kNvml,
       .blame = Blame::gpu,
       .explain =
           "The GPU says why its clocks are low. Being idle, a power cap or set clocks are normal. A hardware slowdown "
           "means that it is too hot, or that the machine's power supply pulled the brake: it then runs at half of "
           "its clock or less, and the whole job with it. It is the state of this moment, so a job that has just "
           "ended can be the reason; that is why it only warns.",
       .remedy = "Check fans, air flow or coolant, and the power supplies.",
       .run = check_gpu_thermal},
      {.code = "gpu.busy",
       .lane = Lane::gpu,
       .summary = "GPU memory that something still uses",
       .needs = kNvml,
       .blame = Blame::user,
       .user_can_cause = true,
       .explain =
           "More than 1 GiB of a GPU's memory is in use. Before a job that has the node for itself this is a process "
           "that an earlier job left behind, or memory that the driver did not get back. On nodes that jobs share, "
           "or when it is run by hand beside a job, it is normal. A user can cause it, so it never drains.",
       .remedy = "Find the process with nvidia-smi or fuser -v /dev/nvidia*, and end it.",
       .run = check_gpu_busy},
  };
}

}  // namespace

const std::vector<Check>& gpu_checks() {
  static const std::vector<Check> kRows = rows_of_gpus();
  return kRows;
}

}  // namespace ms::health
