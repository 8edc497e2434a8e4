// Opens directories of checkpoints, which may lie where other users can lay links.
#pragma once

#include <string>

#include "base/handle.h"

namespace ms::ckpt {

// Opens a directory one component at a time, so that each link that was followed is known with its owner: a user's link
// must not lead whoever names it to the checkpoints of another user. Empty, with errno: it cannot be opened. Throws
// Error("ckpt.link", user).
UniqueFd open_directory(const std::string& path);

}  // namespace ms::ckpt
