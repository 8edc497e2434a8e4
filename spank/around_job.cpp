// SPDX-License-Identifier: GPL-2.0-or-later
#include "around_job.h"

#include <unistd.h>

#include <cstdlib>

#include "preflight.h"
#include "printable.h"
#include "supervise.h"
#include "trust.h"

namespace ms::spank {
namespace {

constexpr int kNodeFault = 69;  // the one exit status of ms-diag that counts (ms-exit(7))
constexpr char kPath[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";

// Variables that slurmd writes itself. Everything else in a prolog's environment may be a user's text.
constexpr const char* kPassedOn[] = {"SLURM_JOB_ID",         "SLURM_JOB_UID",       "SLURMD_NODENAME",
                                     "SLURM_NODELIST",       "SLURM_JOB_NODELIST",  "SLURM_JOB_RESTART_COUNT",
                                     "SLURM_RESTART_COUNT",  "SLURM_JOB_GPUS",      "SLURM_JOB_EXIT_CODE",
                                     "SLURM_JOB_EXIT_CODE2", "SLURM_JOB_DERIVED_EC"};

const char* name_of(When when) { return when == When::prolog ? "prolog" : "epilog"; }

}  // namespace

std::vector<std::string> environment_for(const AroundJob& job) {
  std::vector<std::string> out = {kPath};
  if (!job.preflight.empty()) out.push_back(std::string(kTwin) + "=" + std::string(job.preflight));
  if (job.tasks_killed) out.emplace_back("MS_TASKS_KILLED=1");
  for (const char* name : kPassedOn) {
    if (const char* value = std::getenv(name)) out.push_back(std::string(name) + "=" + value);
  }
  return out;
}

std::string find_program(const std::string& directory) {
  for (const char* where : {"/", "/../bin/", "/../../bin/", "/../../../bin/"}) {
    const std::string path = directory + where + "ms-diag";
    if (access(path.c_str(), F_OK) == 0) return path;
  }
  return directory + "/../bin/ms-diag";
}

bool must_fail(const AroundJob& job, Log log) {
  const char* const name = name_of(job.when);
  const std::string goes_on = job.when == When::prolog ? "; the job starts without a check" : "; nothing was checked";
  const Trusted program = trusted(job.program, Kind::program);
  const Trusted config = trusted(job.config, Kind::file);
  if (!program.problem.empty() || !config.problem.empty()) {
    log(((program.problem.empty() ? config.problem : program.problem) + goes_on).c_str());
    return false;
  }

  Run run;
  run.argv = {program.path, name, "--config", config.path};
  run.environment = environment_for(job);
  run.deadline_s = job.deadline_s;
  const Outcome outcome = supervise(run);
  const std::string said = outcome.output.empty() ? "" : " and said '" + printable(outcome.output) + "'";
  if (outcome.ending == Ending::exited && outcome.code == 0) {
    if (!said.empty()) log((program.path + " " + name + said).c_str());  // that it could not check, above all
    return false;
  }

  if (outcome.ending == Ending::exited && outcome.code == kNodeFault && job.when == When::prolog) {
    log((program.path + " found this node at fault" + said + "; the prolog fails so that the job starts elsewhere")
            .c_str());
    return true;
  }
  log((program.path + " " + name + " " + outcome.describe() + said + goes_on).c_str());
  return false;
}

}  // namespace ms::spank
