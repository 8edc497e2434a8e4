// Extensions that the bare ms-diag loads on demand, each from a library of its own: the active checks (level 2) and
// predict from libms.so, which needs MPI and oneDNN; the notifier from libms_notify.so, which needs libcurl. Neither
// loads the other. The level-1 path, which runs as root in a prolog, never loads them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/cli.h"
#include "health/checks/check.h"

namespace ms::health {

struct Extension {
  std::string_view version;               // must be that of the program that loads it
  const std::vector<Check>& (*checks)();  // of level 2
  int (*predict)(const Args& args);       // ms-diag predict
};

struct NotifyOptions {
  std::string config;    // ms-notify.toml(5)
  std::string run = {};  // the directory of a driven run, whose events are sent in place of the node's; empty: none
  bool once = false;     // send what there is and leave; else stay and look again
};

struct NotifyExtension {
  std::string_view version;                     // must be that of the program that loads it
  int (*notify)(const NotifyOptions& options);  // a Nagios status
  std::string (*page)();                        // ms-notify.toml(5)
  std::string (*sample)();                      // such a file with every key commented out
};

// Each opens its library where this program was built or installed beside it. Throws Error("extension.load", node)
// where that is not there (libms_notify.so: where ms was built without libcurl), cannot be loaded, or is of another
// version.
const Extension& load_extension();
const NotifyExtension& load_notify_extension();

// Every check: the passive ones, then those of load_extension(), which may throw.
std::vector<Check> all_checks();
// The same; where the extension cannot be loaded only the passive ones, and a line on stderr says so.
std::vector<Check> known_checks();

}  // namespace ms::health

// Exported by libms.so (diag/extension.cpp) and by libms_notify.so (notify/extension.cpp).
extern "C" const ms::health::Extension* ms_diag_extension();
extern "C" const ms::health::NotifyExtension* ms_notify_extension();
