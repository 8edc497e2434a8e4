// ms-diag notify: tells people what the spool of a node holds. Unprivileged; the only part of ms-diag that speaks HTTP,
// and so a library of its own, libms_notify.so: what trains loads no libcurl, what notifies no MPI.
#pragma once

#include <string>

#include "health/commands/extension.h"

namespace ms::notify {

// Nagios' status: 0 everything is sent, 1 something is not and will be tried again, 3 it could not begin (as root, a
// second time, without a sound configuration). Without `once` it stays and looks again.
int notify(const health::NotifyOptions& options);
std::string notify_page();    // ms-notify.toml(5)
std::string sample_notify();  // such a file with every key commented out

}  // namespace ms::notify
