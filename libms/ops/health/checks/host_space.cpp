// The check host.space (check.h): file systems that are nearly full.
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <set>

#include "base/text.h"
#include "health/checks/check.h"

namespace ms::health {
namespace {

void judge_share(std::vector<Finding>& findings, const std::string& path, std::string_view what, double free,
                 double total, double limit_percent) {
  if (total <= 0) return;  // file systems that do not count it
  const double percent = 100 * free / total;
  if (percent >= limit_percent) return;
  findings.push_back(about(path, Severity::warning, fmt::format("{:.1f}% of its {} are free", percent, what), percent,
                           limit_percent, "%"));
}

Result check_host_space(Evidence& evidence) {
  std::vector<Finding> findings;
  std::size_t asked = 0;
  const double limit_percent = evidence.policy().limits.space_free_percent;
  std::set<dev_t> devices;  // several places on one file system are one
  for (const std::string path : {"/tmp", "/dev/shm", "/var/spool/slurmd", "/var", "/"}) {
    struct statvfs space {};
    struct stat status {};
    const std::string place = evidence.root().path(path);
    if (::statvfs(place.c_str(), &space) != 0 || ::stat(place.c_str(), &status) != 0) continue;
    ++asked;
    if (!devices.insert(status.st_dev).second) continue;
    if ((space.f_flag & ST_RDONLY) != 0) continue;  // images are full by nature
    judge_share(findings, path, "bytes", static_cast<double>(space.f_bavail), static_cast<double>(space.f_blocks),
                limit_percent);
    judge_share(findings, path, "inodes", static_cast<double>(space.f_favail), static_cast<double>(space.f_files),
                limit_percent);
  }
  if (asked == 0) return skipped("none of the places that fill up is there");
  return judged(std::move(findings), plural(asked, "place"));
}

}  // namespace

extern constinit const Check kHostSpace = {
    .code = "host.space",
    .summary = "file systems that are nearly full",
    .user_can_cause = true,
    .explain =
        "Checks bytes and inodes of /tmp, /dev/shm, slurmd's spool, /var and the root file system; less than "
        "limits.space_free_percent free is a warning. Directories on the same file system count once. Jobs fill these "
        "directories, so it never drains a node, but the next job may fail.",
    .remedy = "Find what was left behind (du -xm, lsof +L1) and clean up in the epilog.",
    .run = check_host_space};

}  // namespace ms::health
