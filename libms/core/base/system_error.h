// Errors of system calls where a limit may be the reason: of the process or of the node, not of what was asked for.
#pragma once

#include <string>

#include "base/error.h"

namespace ms {

// Returns the error of a system call that failed with `err`, whose text `message` has already. Where the process may
// have no more descriptors or memory, the user is to blame, and the node where that has none; the hint names the limit.
Error system_error(std::string kind, Blame blame, std::string message, int err, std::string hint = {});

}  // namespace ms
