#include "health/act/remedies.h"

#include <fmt/format.h>

#include <algorithm>

#include "health/checks/check.h"

namespace ms::health {
namespace {

// Whatever else has the driver open; a node without one of them lacks nothing.
constexpr std::string_view kStopUsers = "-systemctl stop nvidia-fabricmanager nvidia-persistenced nvidia-dcgm";
constexpr std::string_view kStartUsers = "-systemctl start nvidia-persistenced nvidia-fabricmanager nvidia-dcgm";

struct RemedyRow {
  std::string_view codes;  // shell patterns
  std::string_view remedy;
};
// From the mildest to the hardest, as the explanations of the checks say. A code without a row needs a person: memory
// and processors (host.mce), disks (disk.errors, disk.ro), cables (net.link), GPUs without spare rows (gpu.remap).
constexpr RemedyRow kRemedyRows[] = {
    {"disk.mounts", "remount"},
    {"slurm.gres", "restart-slurmd"},
    {"gpu.fabric,gpu.nvlink", "restart-fabric"},
    {"gpu.ecc,gpu.recovery,gpu.xid,gpu.sxid,gpu.fabric,gpu.nvlink", "gpu-reset"},
    {"gpu.driver,gpu.count,slurm.gres", "driver-reload"},
    {"disk.mounts,slurm.gres,gpu.ecc,gpu.recovery,gpu.xid,gpu.sxid,gpu.fabric,gpu.nvlink,gpu.driver,gpu.count,gpu.lost",
     kReboot},
};

}  // namespace

const std::vector<Remedy>& remedies() {
  static const std::vector<Remedy> kRemedies = {
      {.name = kLeftovers,
       .doc = "End the processes of users that belong to ended jobs: SIGTERM, five seconds later SIGKILL. Part of the "
              "other remedies. Processes of root, and those in expect.strays, stay."},
      {.name = "remount",
       .doc = "Unmount the paths of expect.mounts that disk.mounts reports (umount -f -l), and mount them again as in "
              "/etc/fstab.",
       .ends_leftovers = true},
      {.name = "restart-slurmd", .doc = "systemctl restart slurmd.", .commands = {"systemctl restart slurmd"}},
      {.name = "restart-fabric",
       .doc = "systemctl restart nvidia-fabricmanager.",
       .ends_leftovers = true,
       .commands = {"systemctl restart nvidia-fabricmanager"},
       .deadline_s = 120},
      {.name = "gpu-reset",
       .doc = "Reset all GPUs of the node (nvidia-smi --gpu-reset).",
       .ends_leftovers = true,
       .commands = {"{nvidia_smi} --gpu-reset"},
       .deadline_s = 180},
      {.name = "driver-reload",
       .doc = "Stop the services of the GPU driver, unload its modules, load them, start the services.",
       .ends_leftovers = true,
       .commands = {kStopUsers, "-modprobe --remove nvidia_peermem",
                    "modprobe --remove nvidia_uvm nvidia_drm nvidia_modeset nvidia", "modprobe nvidia_uvm",
                    kStartUsers},
       .deadline_s = 120},
      {.name = kReboot,
       .doc = "scontrol reboot ASAP nextstate=DOWN, so that no job starts before the tests. Needs RebootProgram; set "
              "Slurm's ResumeTimeout above the time that a node takes to boot."},
  };
  return kRemedies;
}

const Remedy* find_remedy(std::string_view name) {
  const auto found = std::ranges::find(remedies(), name, &Remedy::name);
  return found == remedies().end() ? nullptr : &*found;
}

std::vector<std::string_view> remedies_of(std::string_view code) {
  std::vector<std::string_view> names;
  for (const RemedyRow& row : kRemedyRows) {
    if (matches(row.codes, code)) names.push_back(row.remedy);
  }
  return names;
}

std::vector<std::pair<std::string, std::string>> remedy_terms() {
  std::vector<std::pair<std::string, std::string>> terms;
  for (const Remedy& remedy : remedies()) {
    const auto row = std::ranges::find(kRemedyRows, remedy.name, &RemedyRow::remedy);
    terms.emplace_back(remedy.name, row == std::end(kRemedyRows) ? std::string(remedy.doc)
                                                                 : fmt::format("{} For {}.", remedy.doc, row->codes));
  }
  return terms;
}

std::string repair_description() {
  return "Run it as root on the head node; root must reach the nodes by ssh without a password. For the "
         "service: "
         "systemctl enable --now ms-repair.service. Each pass checks the nodes in service at level 1, drains "
         "those with critical findings under the rules of act in ms-diag.toml(5), and moves every node that "
         "ms-diag drained one step on: keep evidence, wait until its jobs have ended, use the next remedy, test "
         "at level 2 and then 3, undrain. If no remedy is left or allowed, the node stays drained, and a bundle "
         "of reports, logs, facts and history before and after the repair is written for the vendor's ticket. "
         "Values that look like passwords, tokens or webhooks are removed from it; read it before you send "
         "it.\n\n"
         "A node is touched only while its reason is the one that the repair began with, and while no job is on it, "
         "not even a suspended one. To stop the repair of a node, change the reason: scontrol update NodeName=N "
         "Reason='...'. Such a node is left alone until it has been in service again. A reason that is more than a "
         "finding of ms-diag, or that root, SlurmUser and SlurmdUser did not set, is a person's and is left alone, "
         "too. "
         "To have a node repaired that you found yourself, drain it with the reason 'ms-diag:CODE' and nothing else, "
         "as in ms-diag:gpu.ecc. If Slurm does not "
         "answer, nothing is changed. The steps may be interrupted anywhere: the next pass goes on.\n\n"
         "A node that ms-driver excluded belongs to its job until the job ends or ms-driver give-back releases "
         "it, so the repair begins then. A repaired node is idle in its partition. An elastic run with "
         "--max-nodes takes it when ms-loan or a resize asks for more nodes, and a requeued job may get it; "
         "a node that a run excluded stays excluded there until ms-driver readmit.\n\n"
         "Exits 0 if no node is in repair, 1 if some are, 2 if some need a person, 3 if Slurm did not answer.";
}

}  // namespace ms::health
