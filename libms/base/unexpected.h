// Exceptions that are no ms::Error, at the trampolines that catch everything: not each of them is a bug.
#pragma once

#include <exception>
#include <string>

#include "base/error.h"

namespace ms {

// Returns the error that the standard library's exception means. Error("system.threads" or "system.memory", user): the
// system has no more of them for this process. Anything else is a bug of ours, of `bug_kind`.
Error error_of(const std::exception& thrown, std::string bug_kind);

}  // namespace ms
