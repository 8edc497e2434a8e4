// The check slurm.gres (check.h): devices that gres.conf gives to jobs and that are not there. slurmd reads gres.conf
// only when it starts, so a device that went away later is still offered to jobs.
#include <fmt/format.h>
#include <sys/stat.h>

#include "health/checks/check.h"
#include "health/evidence/gres_conf.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

// As slurmd asks it: a character or block device. A fake root cannot hold devices, there the name decides.
bool is_device(const Sysroot& root, const std::string& path) {
  if (!root.is_real()) return root.exists(path);
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode));
}

Result check_slurm_gres(Evidence& evidence) {
  const Sysroot& root = evidence.root();
  const std::string& path = evidence.policy().paths.gres_conf;
  const auto conf = read_gres_conf(root, path, node_name(root));
  if (!conf) return skipped(fmt::format("there is no readable {}", path));
  std::vector<Finding> findings;
  std::size_t devices = 0;
  for (const GresLine& line : conf->lines) {
    const std::string gres = line.type.empty() ? line.name : fmt::format("{}:{}", line.name, line.type);
    devices += line.files.size();
    for (const std::string& file : line.files) {
      if (is_device(root, file)) continue;
      findings.push_back(about(file, Severity::critical,
                               fmt::format("is no device, but {} gives it to jobs as {}", path, printable(gres))));
    }
    if (line.count && !line.files.empty() && static_cast<std::size_t>(*line.count) != line.files.size()) {
      findings.push_back(about(printable(gres), Severity::critical,
                               fmt::format("Count={} in {}, but File= names {}", *line.count, path, line.files.size()),
                               line.files.size(), *line.count, "devices"));
    }
  }
  if (devices == 0) return skipped(fmt::format("{} names no devices of this node", path));
  return judged(std::move(findings), fmt::format("{} devices", devices));
}

}  // namespace

extern constinit const Check kSlurmGres = {
    .code = "slurm.gres",
    .summary = "devices in gres.conf that do not exist",
    .needs = "gres.conf",
    .explain =
        "Every File= and MultipleFiles= of this node in gres.conf, and in the files that it includes, must be a "
        "device, and Count= must be the number of devices; Count= of mps and shard counts shares and is not compared. "
        "slurmd checks this only when it starts. A device that disappeared later is still allocated to jobs, which "
        "then fail at their start.",
    .remedy = "Find out why the device is missing (the driver, lspci); then restart slurmd.",
    .run = check_slurm_gres};

}  // namespace ms::health
