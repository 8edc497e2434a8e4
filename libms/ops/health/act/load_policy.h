// Reads and checks the site's policy.
#pragma once

#include <string>

#include "health/policy.h"

namespace ms::health {

// Reads and checks it; all problems come at once, as Error("config.invalid", user).
Policy load_policy(const std::string& path);
// The same for what runs as root: also refuses, as Error("policy.owner", user), a file that is not root's, that others
// may write, or that lies in a directory that others may write (a sticky one passes).
Policy load_policy_as_root(const std::string& path);

}  // namespace ms::health
