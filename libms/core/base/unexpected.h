// Exceptions at the trampolines that catch everything: not each that is no ms::Error is a bug.
#pragma once

#include <exception>
#include <string>

#include "base/error.h"

namespace ms {

// Returns the error that an exception means. An ms::Error is returned as it is. What the standard library throws for
// the system is of the environment: "system.threads", "system.memory" and "system.descriptors", user, where the system
// has no more for this process; "system.files", storage; "system.call", node. Anything else is a bug of ours, of
// `bug_kind`.
Error error_of(const std::exception& thrown, std::string bug_kind);

// Makes an exception that no trampoline catches end the process with the error's message and exit code, not with
// abort(). Called once, by main().
void end_on_uncaught(const char* tool) noexcept;

// Keeps malloc from reserving address space for every thread where 'ulimit -v' bounds it: threads and libraries, which
// crash where they get none, would find nothing left. Called once, by main(), before there are threads.
void spare_address_space() noexcept;

}  // namespace ms
