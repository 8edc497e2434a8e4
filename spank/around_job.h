// SPDX-License-Identifier: GPL-2.0-or-later
// The steps before and after a job, shared by the plugin and the plain programs: start ms-diag, act on the one answer
// that counts. First do no harm: whatever else happens to it, the job starts and the log says why nothing was checked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ms::spank {

enum class When { prolog, epilog };

// How one line gets into the log. Only what somebody should know is logged: a node that is fine is no news.
using Log = void (*)(const char* line);

struct AroundJob {
  When when = When::prolog;
  std::string program;  // ms-diag
  std::string config;   // its policy
  double deadline_s = 0;
  std::string_view preflight;  // one of the words of preflight.h, or empty: the job did not say
  bool tasks_killed = false;   // epilog: see killed.h
};

// True: this node is at fault, ms-diag has drained it, and the prolog has to fail so that Slurm starts the job
// elsewhere. An epilog never has to.
bool must_fail(const AroundJob& job, Log log);

// ms-diag where a build tree and an installation have it: in this directory, or in a bin beside it or above it.
std::string find_program(const std::string& directory);

// Returns the environment for ms-diag: a PATH, what the plugin knows of the job, and the variables of ours that slurmd
// itself writes.
std::vector<std::string> environment_for(const AroundJob& job);

}  // namespace ms::spank
