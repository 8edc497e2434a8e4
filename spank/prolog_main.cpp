// SPDX-License-Identifier: GPL-2.0-or-later
// ms-prolog and ms-epilog, for sites that load no plugin: Prolog= and Epilog= in slurm.conf take a program without
// arguments, so the policy is at its place and ms-diag beside this program. One source, built twice (MS_IS_PROLOG).
// Exit status 1 fails the prolog; there is no other reason for it than a node at fault.
#include <limits.h>
#include <syslog.h>
#include <unistd.h>

#include <cstdlib>

#include "around_job.h"
#include "preflight.h"
#include "settings.h"

namespace {

using namespace ms::spank;

std::string own_directory() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return {};
  const std::string_view own(path, static_cast<std::size_t>(length));
  return std::string(own.substr(0, own.rfind('/')));
}

void to_syslog(const char* line) { syslog(LOG_WARNING, "%s", line); }

}  // namespace

int main() {
  constexpr bool kIsProlog = MS_IS_PROLOG;
  openlog(kIsProlog ? "ms-prolog" : "ms-epilog", LOG_PID, LOG_DAEMON);
  AroundJob job;
  job.when = kIsProlog ? When::prolog : When::epilog;
  job.program = find_program(own_directory());
  job.config = kPolicy;
  job.deadline_s = kDeadlineS;
  job.preflight = preflight_of_variable(std::getenv(kTwinInProlog));  // where jobs are submitted through the plugin
  return must_fail(job, to_syslog) ? EXIT_FAILURE : EXIT_SUCCESS;
}
