// SPDX-License-Identifier: GPL-2.0-or-later
// The SPANK plugin: what Slurm calls, and who does it. At submission the option --ms-preflight and its twin are looked
// at; in a job's prolog and epilog (processes of their own, on every node of the job) ms-diag is started; the first
// task of a job tells the user what ms-diag noted. The plugin is made to be "optional" in plugstack.conf, so that a
// plugin that Slurm refuses to load stops no job. No callback ever returns an error but the option's at submission: an
// error from init or user_init ends a job as COMPLETED although it has not run.
#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "around_job.h"
#include "killed.h"
#include "preflight.h"
#include "printable.h"
#include "settings.h"
#include "tell_user.h"

extern "C" {
#include <slurm/slurm.h>
#include <slurm/spank.h>
}

#ifndef MS_PLUGIN_VERSION
#define MS_PLUGIN_VERSION SLURM_VERSION_NUMBER
#endif
#define TEXT_OF(number) #number
#define TEXT_OF_VALUE(macro) TEXT_OF(macro)

extern "C" {
extern const char plugin_name[] = "ms_spank";
extern const char plugin_type[] = "spank";
extern const unsigned int plugin_version = MS_PLUGIN_VERSION;  // Slurm compares release and sub-release with its own
// For ms-diag check-site, which finds it in the file: a plugin for another Slurm cannot be loaded to be asked.
extern const char plugin_built_for[] = "ms_spank built for slurm " TEXT_OF_VALUE(MS_PLUGIN_VERSION);
}

namespace {

using namespace ms::spank;

bool is_submission() {
  const spank_context_t context = spank_context();
  return context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR;
}

// The option's value, empty if it was not given. Static, because one process submits one job and Slurm's callback has
// no argument of ours that could keep it.
std::string_view& option_given() {
  static std::string_view word = {};
  return word;
}

int take_option(int, const char* argument, int remote) {
  if (remote != 0 || !is_submission()) return ESPANK_SUCCESS;
  option_given() = preflight_of_option(argument);
  if (!option_given().empty()) return ESPANK_SUCCESS;
  slurm_error("--ms-preflight takes on, off or require, not '%s'", printable(argument).c_str());
  return -1;
}

// Slurm copies the option. It asks for writable text and writes none.
spank_option the_option() {
  return {const_cast<char*>(kOptionName),
          const_cast<char*>("[on|off|require]"),
          const_cast<char*>("check the nodes before the job starts; off: do not check, if the site allows it; require: "
                            "fail instead of running on a node with a finding (default: site policy)"),
          2,  // the argument is optional
          0,
          take_option};
}

void to_slurm(const char* line) { slurm_error("ms_spank: %s", line); }

void complain(const Settings& settings) {
  to_slurm(("plugstack.conf: " + settings.problem + "; nothing is checked").c_str());
}

std::string own_directory() {
  Dl_info info{};
  char path[PATH_MAX];
  if (dladdr(static_cast<const void*>(plugin_name), &info) == 0 || realpath(info.dli_fname, path) == nullptr) return {};
  const std::string_view own(path);
  return std::string(own.substr(0, own.rfind('/')));
}

// Returns the job's option at submission. The user could have changed it since, so it is parsed again.
std::string_view preflight(spank_t spank) {
  spank_option option = the_option();
  char* argument = nullptr;
  if (spank_option_getopt(spank, &option, &argument) == ESPANK_SUCCESS) return preflight_of_option(argument);
  return preflight_of_variable(std::getenv(kTwinInProlog));
}

bool around_job(spank_t spank, int count, char** arguments, When when) {
  if (spank_context() != S_CTX_JOB_SCRIPT) return false;
  const Settings settings = read_settings(count, arguments);
  if (!settings.problem.empty()) {
    complain(settings);
    return false;
  }
  AroundJob job;
  job.when = when;
  job.program = settings.program.empty() ? find_program(own_directory()) : settings.program;
  job.config = settings.config;
  job.deadline_s = settings.deadline_s;
  job.preflight = preflight(spank);
  std::uint32_t job_id = 0;
  job.tasks_killed = when == When::epilog && spank_get_item(spank, S_JOB_ID, &job_id) == ESPANK_SUCCESS &&
                     take_mark(settings.notes, job_id);
  return must_fail(job, to_slurm);
}

std::string job_variable(spank_t spank, const char* name) {
  char value[4096] = "";  // of a longer list of nodes this is the beginning, which is all that is looked at
  const spank_err_t error = spank_getenv(spank, name, value, sizeof value);
  return error == ESPANK_SUCCESS || error == ESPANK_NOSPACE ? std::string(value, strnlen(value, sizeof value)) : "";
}

}  // namespace

extern "C" {

int slurm_spank_init(spank_t spank, int count, char** arguments) {
  spank_option option = the_option();
  spank_option_register(spank, &option);  // also where the plugin does nothing else: no job script has to be changed
  if (spank_context() == S_CTX_SLURMD) {  // slurmd starts: the administrator is looking
    const Settings settings = read_settings(count, arguments);
    if (!settings.problem.empty()) complain(settings);
  }
  return ESPANK_SUCCESS;
}

// Runs at submission: passes the word to the prologs, also to plain ones, to which Slurm does not pass the option.
int slurm_spank_init_post_opt(spank_t spank, int, char**) {
  if (!is_submission()) return ESPANK_SUCCESS;
  // Inside a job srun only starts a step of it: the nodes have been checked.
  if (spank_context() == S_CTX_LOCAL && std::getenv("SLURM_JOB_ID") != nullptr) return ESPANK_SUCCESS;
  std::string_view word = option_given();
  const char* const twin = std::getenv(kTwin);
  if (word.empty() && twin != nullptr && *twin != '\0') {
    word = preflight_of_variable(twin);
    if (word.empty()) {
      slurm_spank_log("warning: %s='%s' is ignored: it may be on, off or require", kTwin, printable(twin).c_str());
    }
  }
  if (!word.empty()) spank_job_control_setenv(spank, kTwin, std::string(word).c_str(), 1);
  return ESPANK_SUCCESS;
}

int slurm_spank_job_prolog(spank_t spank, int count, char** arguments) {
  // This process is the prolog. Slurm ignores an optional plugin's return value, but not this process's exit status.
  if (around_job(spank, count, arguments, When::prolog)) _exit(EXIT_FAILURE);
  return ESPANK_SUCCESS;
}

int slurm_spank_job_epilog(spank_t spank, int count, char** arguments) {
  around_job(spank, count, arguments, When::epilog);
  return ESPANK_SUCCESS;
}

int slurm_spank_task_init(spank_t spank, int count, char** arguments) {
  if (spank_context() != S_CTX_REMOTE) return ESPANK_SUCCESS;
  const Settings settings = read_settings(count, arguments);
  std::uint32_t job_id = 0, step_id = 0;
  Teller teller;
  if (!settings.problem.empty() || spank_get_item(spank, S_JOB_ID, &job_id) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_STEPID, &step_id) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_TASK_ID, &teller.local_task) != ESPANK_SUCCESS) {
    return ESPANK_SUCCESS;
  }
  teller.is_batch_step = step_id == SLURM_BATCH_SCRIPT;
  teller.is_first_step = step_id == 0;
  teller.has_script = job_variable(spank, "ENVIRONMENT") == "BATCH";
  teller.on_batch_host =
      job_variable(spank, "SLURMD_NODENAME") == first_host(job_variable(spank, "SLURM_JOB_NODELIST"));
  if (!is_told_here(teller)) return ESPANK_SUCCESS;
  for (const std::string& line : read_note(settings.notes, job_id)) slurm_spank_log("%s", line.c_str());
  return ESPANK_SUCCESS;
}

int slurm_spank_task_exit(spank_t spank, int count, char** arguments) {
  if (spank_context() != S_CTX_REMOTE) return ESPANK_SUCCESS;
  const Settings settings = read_settings(count, arguments);
  std::uint32_t job_id = 0;
  int status = 0;
  if (settings.problem.empty() && spank_get_item(spank, S_JOB_ID, &job_id) == ESPANK_SUCCESS &&
      spank_get_item(spank, S_TASK_EXIT_STATUS, &status) == ESPANK_SUCCESS && WIFSIGNALED(status)) {
    mark_killed(settings.notes, job_id);
  }
  return ESPANK_SUCCESS;
}

}  // extern "C"
